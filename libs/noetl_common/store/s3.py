"""Objects of a server that speaks S3: MinIO, AWS, SeaweedFS and others."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO
from urllib.parse import urlsplit

import certifi
import msgspec
import urllib3
from minio import Minio
from minio.commonconfig import ENABLED, Filter
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from minio.lifecycleconfig import AbortIncompleteMultipartUpload, LifecycleConfig, Rule

from noetl_common.errors import (
    ConfigError,
    NoetlError,
    ReferenceNotAvailable,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from noetl_common.log import get_logger
from noetl_common.store.objects import CONNECT_TIMEOUT_S, READ_TIMEOUT_S

PART_BYTES = 16 * 1024 * 1024
PARTS_AT_ONCE_MAX = 3  # of one object
CONNECTIONS_MAX = 32
UNFINISHED_DAYS = 1
AWS = "https://s3.amazonaws.com"
_MISSING = {"NoSuchKey", "NoSuchBucket", "NoSuchUpload", "ResourceNotFound"}
_MADE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}

log = get_logger(__name__)


class S3Login(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is and who asks. `endpoint`: a URL, empty for AWS; without keys public objects are read."""

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""
    session_token: str = ""
    region: str = ""


class S3Objects:
    """One bucket of an S3 server. An object is replaced as a whole or not at all."""

    def __init__(self, login: S3Login, bucket: str) -> None:
        self._bucket = bucket
        self._region = login.region
        self._pool = _pool()
        self._client = _client(login, self._pool)

    def make_bucket(self) -> None:
        """Make the bucket if it is not there; parts of uploads that were never finished leave it after a day."""
        with _translated():
            if self._client.bucket_exists(self._bucket):
                return
            try:
                self._client.make_bucket(self._bucket, self._region or None)
            except S3Error as exc:
                if exc.code not in _MADE:
                    raise
        self._expire_unfinished()

    def put(self, key: str, payload: BinaryIO, size: int) -> None:
        """Store an object, over PART_BYTES in parts; what is in memory already goes several parts at once."""
        at_once = PARTS_AT_ONCE_MAX if isinstance(payload, io.BytesIO) else 1
        with _translated():
            self._client.put_object(
                self._bucket,
                key,
                payload,
                size,
                part_size=PART_BYTES,
                num_parallel_uploads=at_once,
            )

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return an object, or a part of it; behind its end there is nothing."""
        return _read(self._client, self._bucket, key, offset=offset, length=length)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with _translated():
            self._client.remove_object(self._bucket, key)

    def list_keys(self, prefix: str, *, after: str, limit: int) -> list[str]:
        """Return keys behind `after`."""
        with _translated():
            found = self._client.list_objects(self._bucket, prefix, recursive=True, start_after=after or None)
            return [str(one.object_name) for one in islice(found, limit)]

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _expire_unfinished(self) -> None:
        rule = Rule(
            ENABLED,
            rule_filter=Filter(prefix=""),
            rule_id="unfinished-uploads",
            abort_incomplete_multipart_upload=AbortIncompleteMultipartUpload(days_after_initiation=UNFINISHED_DAYS),
        )
        try:
            with _translated():
                self._client.set_bucket_lifecycle(self._bucket, LifecycleConfig([rule]))
        except NoetlError as exc:
            # Not every server knows it, nor may every login set it; it only saves room.
            log.info("store.lifecycle_not_set", bucket=self._bucket, error=exc)


def read_s3_object(login: S3Login, place: str, *, bytes_max: int) -> bytes:
    """Return the object of `place`, as s3://bucket/key. It blocks: call it in a thread.

    Errors: ConfigError for a place or endpoint that is none, ReferenceNotAvailable, Unauthorized, Unavailable,
    TooLarge over `bytes_max`.
    """
    bucket, key = place_in(place, "s3")
    pool = _pool()
    try:
        found = _read(_client(login, pool), bucket, key, offset=0, length=bytes_max + 1)
    finally:
        pool.clear()
    if len(found) > bytes_max:
        raise TooLarge(f"{place}: expected at most {bytes_max} bytes, found more")
    return found


def place_in(place: str, scheme: str) -> tuple[str, str]:
    """Return (bucket, key) of an object's URL. Errors: ConfigError when it is none."""
    start, found, rest = place.partition("://")
    bucket, _, key = rest.partition("/")
    if not found or start != scheme or not bucket or not key:
        raise ConfigError(f"expected {scheme}://bucket/key, found {place!r}")
    return bucket, key


def _read(client: Minio, bucket: str, key: str, *, offset: int, length: int | None) -> bytes:
    try:
        with _translated():
            response = client.get_object(bucket, key, offset=offset, length=length or 0)
            try:
                return bytes(response.read())
            finally:
                response.close()
                response.release_conn()
    except _BehindTheEnd:
        return b""


class _BehindTheEnd(NoetlError):
    """A range that begins where the object has ended."""


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the client raises into our errors."""
    try:
        yield
    except S3Error as exc:
        if exc.code == "InvalidRange":
            raise _BehindTheEnd(str(exc.code)) from exc
        said = f"{exc.code}: {exc.message}" if exc.message else str(exc.code)
        status = exc.response.status
        if exc.code in _MISSING or status == 404:
            raise ReferenceNotAvailable(said) from exc
        if status in (401, 403):
            raise Unauthorized(said, status=403) from exc
        if status >= 500 or status in (408, 429):
            raise Unavailable(said) from exc
        raise ConfigError(said) from exc
    except (InvalidResponseError, ServerError) as exc:
        # Not S3's own words: a proxy whose server is away, or a server that is going down.
        raise Unavailable(str(exc)) from exc
    except (urllib3.exceptions.LocationParseError, MinioException, ValueError) as exc:
        raise ConfigError(f"{type(exc).__name__}: {exc}") from exc
    except (urllib3.exceptions.HTTPError, OSError) as exc:
        raise Unavailable(f"{type(exc).__name__}: {exc}") from exc


def _client(login: S3Login, pool: urllib3.PoolManager) -> Minio:
    endpoint = login.endpoint or AWS
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ConfigError(f"S3 endpoint: expected http://host:port or https://host, found {endpoint!r}")
    try:
        return Minio(
            parts.netloc.rpartition("@")[2],
            access_key=login.access_key or None,
            secret_key=login.secret_key or None,
            session_token=login.session_token or None,
            secure=parts.scheme == "https",
            region=login.region or None,
            http_client=pool,
        )
    except ValueError as exc:
        raise ConfigError(f"S3 endpoint {endpoint!r}: {exc}") from exc


def _pool() -> urllib3.PoolManager:
    return urllib3.PoolManager(
        maxsize=CONNECTIONS_MAX,
        timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
        # Repeating is the tier's, which also knows when to stop.
        retries=False,
        cert_reqs="CERT_REQUIRED",
        ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
    )
