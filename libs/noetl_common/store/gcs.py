"""Objects of Google Cloud Storage; needs the extra noetl[gcs]."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO

from noetl_common.errors import (
    ConfigError,
    DependencyMissing,
    ReferenceNotAvailable,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from noetl_common.store.objects import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from noetl_common.store.s3 import PART_BYTES, place_in

TIMEOUT_S = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)


class GcsObjects:
    """One bucket. Who asks is told by GOOGLE_APPLICATION_CREDENTIALS or by the machine it runs on."""

    def __init__(self, bucket: str, *, project: str = "") -> None:
        self._client = _client(project=project)
        self._bucket = self._client.bucket(bucket)

    def make_bucket(self) -> None:
        """Make the bucket if it is not there."""
        with _translated():
            if not self._bucket.exists(timeout=TIMEOUT_S, retry=None):
                self._client.create_bucket(self._bucket, timeout=TIMEOUT_S, retry=None)

    def put(self, key: str, payload: BinaryIO, size: int) -> None:
        """Store an object, over PART_BYTES in parts."""
        with _translated():
            blob = self._bucket.blob(key, chunk_size=PART_BYTES if size > PART_BYTES else None)
            blob.upload_from_file(
                payload, size=size, content_type="application/octet-stream", timeout=TIMEOUT_S, retry=None
            )

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return an object, or a part of it; behind its end there is nothing."""
        return _read(self._bucket.blob(key), offset=offset, length=length)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with _translated():
            self._bucket.blob(key).delete(timeout=TIMEOUT_S, retry=None)

    def list_keys(self, prefix: str, *, after: str, limit: int) -> list[str]:
        """Return keys behind `after`."""
        with _translated():
            found = self._client.list_blobs(
                self._bucket, prefix=prefix, start_offset=after or None, timeout=TIMEOUT_S, retry=None
            )
            # The offset itself is listed too; an emulator may not know of offsets at all.
            return [str(name) for name in islice((one.name for one in found if one.name > after), limit)]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def read_gcs_object(account: Mapping[str, Any] | None, place: str, *, bytes_max: int) -> bytes:
    """Return the object of `place`, as gs://bucket/key. It blocks: call it in a thread.

    Shapes: `account` is the JSON of a service account's key; None: as the environment says.
    Errors: ConfigError for a place or account that is none, DependencyMissing, ReferenceNotAvailable, Unauthorized,
    Unavailable, TooLarge over `bytes_max`.
    """
    bucket, key = place_in(place, "gs")
    client = _client(account=account)
    try:
        found = _read(client.bucket(bucket).blob(key), offset=0, length=bytes_max + 1)
    finally:
        client.close()
    if len(found) > bytes_max:
        raise TooLarge(f"{place}: expected at most {bytes_max} bytes, found more")
    return found


def _read(blob: Any, *, offset: int, length: int | None) -> bytes:
    from google.api_core.exceptions import RequestRangeNotSatisfiable

    with _translated():
        try:
            # The whole object is checked against its checksum; a part cannot be.
            part = {} if length is None else {"start": offset, "end": offset + length - 1}
            return bytes(blob.download_as_bytes(timeout=TIMEOUT_S, retry=None, **part))
        except RequestRangeNotSatisfiable:
            return b""


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the client raises into our errors."""
    from google.api_core.exceptions import GoogleAPICallError, NotFound
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException

    try:
        yield
    except NotFound as exc:
        raise ReferenceNotAvailable(str(exc)) from exc
    except (GoogleAPICallError, InvalidResponse) as exc:
        status = _status(exc)
        if status in (401, 403):
            raise Unauthorized(str(exc), status=403) from exc
        if status == 404:
            raise ReferenceNotAvailable(str(exc)) from exc
        if status >= 500 or status in (408, 429):
            raise Unavailable(str(exc)) from exc
        raise ConfigError(str(exc)) from exc
    except (TransportError, RequestException, DataCorruption, OSError) as exc:
        raise Unavailable(f"{type(exc).__name__}: {exc}") from exc
    except GoogleAuthError as exc:
        raise Unauthorized(f"{type(exc).__name__}: {exc}", status=403) from exc
    except ValueError as exc:
        raise ConfigError(f"{type(exc).__name__}: {exc}") from exc


def _status(exc: Any) -> int:
    response = getattr(exc, "response", None)
    return int(getattr(exc, "code", None) or getattr(response, "status_code", None) or 0)


def _client(*, project: str = "", account: Mapping[str, Any] | None = None) -> Any:
    """Return a client. Errors: DependencyMissing without the extra; ConfigError when nothing says who asks."""
    try:
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import storage
        from google.oauth2.service_account import Credentials
    except ImportError as exc:
        raise DependencyMissing(f"gcs needs the extra noetl[gcs]: {exc}") from exc
    try:
        if account is None:
            return storage.Client(project=project or None)
        login = Credentials.from_service_account_info(dict(account))  # type: ignore[no-untyped-call]
        return storage.Client(project=project or login.project_id, credentials=login)
    except (GoogleAuthError, OSError, ValueError) as exc:
        raise ConfigError(f"gcs: expected credentials (GOOGLE_APPLICATION_CREDENTIALS), found: {exc}") from exc
