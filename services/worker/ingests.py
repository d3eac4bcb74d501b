"""Where ingest answers: one address or several, of which one is preferred for as long as it answers."""

from urllib.parse import urlsplit

from noetl_common.errors import ConfigError


class Ingests:
    """The addresses of NOETL_SERVER_URL; any thread may ask.

    Errors: ConfigError when one of them is no http address.
    """

    def __init__(self, urls: str) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        for url in self._urls or [urls]:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise ConfigError(f"NOETL_SERVER_URL: expected http://host:port, or several of them, found {url!r}")
        self._preferred = 0

    def in_turn(self) -> list[str]:
        """Return every address once: the one that answered last, then those to try instead."""
        first = self._preferred
        return self._urls[first:] + self._urls[:first]

    def is_away(self, url: str) -> None:
        """Prefer the next address, unless another than `url` is preferred by now."""
        if self._urls[self._preferred] == url:
            self._preferred = (self._preferred + 1) % len(self._urls)
