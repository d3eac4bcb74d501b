"""Results in an S3 server: large ones, a server that dies and comes back, a wrong login; and a full volume."""

import asyncio
import ctypes
import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from noetl_common.core.values import TierRule
from noetl_common.errors import ConfigError, ReferenceNotAvailable, Unauthorized, Unavailable
from noetl_common.store.config import Stores, open_store
from noetl_common.store.disk import DiskTier
from noetl_common.store.objects import ObjectTier
from noetl_common.store.results import ResultStore
from noetl_common.store.s3 import S3Objects, read_s3_object
from tests.object_stores import S3Server
from tests.running import wait_until

MIB = 1024 * 1024
KEY = "exec/1/step/large"


def settings(server: S3Server, **changes: str) -> Stores:
    """Return the settings of a role that stores in this server, in a bucket of its own."""
    login = server.login
    given = {
        "minio_endpoint": login.endpoint,
        "minio_access_key": login.access_key,
        "minio_secret_key": login.secret_key,
        "minio_bucket": f"bucket-{uuid4().hex[:12]}",
        **changes,
    }
    return Stores(database_url="", default_store_tier="minio", **given)


def tier_on(server: S3Server, *, retry_s: float = 10.0, bucket: str = "results") -> ObjectTier:
    return ObjectTier(S3Objects(server.login, bucket), "minio", retry_s=retry_s)


async def test_roles_that_start_at_once_make_one_bucket_and_share_it(s3: S3Server) -> None:
    config = settings(s3)
    writer, reader = open_store(config), open_store(config)
    await asyncio.gather(writer.start(), reader.start())
    stored = await writer.put(1, "step", b"x" * 100_000)
    assert (stored.tier, stored.compression) == ("minio", "gzip")
    assert await reader.read(stored.uri, stored.sha256, stored.compression) == b"x" * 100_000
    await writer.close()
    await reader.close()


@pytest.mark.parametrize("size", [15_000_000, 200_000_000])
async def test_a_large_object_comes_back_whole_and_in_parts(s3: S3Server, size: int) -> None:
    tier = tier_on(s3)
    payload = os.urandom(size)
    uri = await tier.put(KEY, payload)
    assert hashlib.sha256(await tier.get(uri)).digest() == hashlib.sha256(payload).digest()
    for offset, length in ((16 * MIB - 5, 10), (size - 7, 100), (12_345_677, 1_000_001)):
        assert await tier.get_range(uri, offset=offset, length=length) == payload[offset : offset + length]
    await tier.delete(uri)
    await tier.close()


@pytest.mark.parametrize("wrong", [{"minio_secret_key": "another"}, {"minio_access_key": "nobody"}])
async def test_a_wrong_login_is_refused_at_the_start(s3: S3Server, wrong: dict[str, str]) -> None:
    store = open_store(settings(s3, **wrong))
    with pytest.raises(ConfigError, match=r"minio tier: the login is refused: (Signature|InvalidAccess|Access)"):
        await store.start()
    await store.close()


async def test_a_server_that_dies_amid_a_write_and_returns_gets_the_whole_object(own_s3: S3Server) -> None:
    tier = tier_on(own_s3, retry_s=60.0)
    payload = os.urandom(200_000_000)
    writing = asyncio.create_task(tier.put(KEY, payload))
    await _begun(own_s3)
    own_s3.kill()
    assert not writing.done()
    await asyncio.to_thread(own_s3.start)
    uri = await writing
    assert hashlib.sha256(await tier.get(uri)).digest() == hashlib.sha256(payload).digest()
    await tier.close()


async def test_of_a_write_that_was_given_up_nothing_is_visible(own_s3: S3Server, tmp_path: Path) -> None:
    tier = tier_on(own_s3, retry_s=1.0)
    small = await tier.put("exec/1/step/small", b"kept")
    writing = asyncio.create_task(tier.put(KEY, os.urandom(200_000_000)))
    await _begun(own_s3)
    own_s3.kill()
    with pytest.raises(Unavailable, match="minio tier: cannot write exec/1/step/large"):
        await writing
    # While it is away: what is read says so, what is written goes to the next tier, no role fails to start.
    with pytest.raises(ReferenceNotAvailable, match="cannot be read now"):
        await tier.get(small)
    store = ResultStore([tier, DiskTier(tmp_path)], TierRule(default="minio"))
    await store.start()
    stored = await store.put(1, "step", b"y" * 100_000)
    assert stored.tier == "disk"
    with pytest.raises(ReferenceNotAvailable, match=r"no tier takes it \(tried minio\)"):
        await ResultStore([tier], TierRule(default="minio")).put(1, "step", b"y" * 100_000)
    await asyncio.to_thread(own_s3.start)
    assert await tier.get(small) == b"kept"
    with pytest.raises(ReferenceNotAvailable, match="exec/1/step/large"):
        await tier.get(f"minio://{KEY}")
    assert (await store.put(1, "step", b"z" * 100_000)).tier == "minio"
    await store.close()


async def test_a_bucket_is_made_by_the_first_write_when_the_server_was_away_at_the_start(own_s3: S3Server) -> None:
    own_s3.kill()
    store = ResultStore([tier_on(own_s3, retry_s=0.5, bucket="late")], TierRule(default="minio"))
    await store.start()
    await asyncio.to_thread(own_s3.start)
    stored = await store.put(1, "step", b"z" * 100_000)
    assert await store.read(stored.uri, stored.sha256, stored.compression) == b"z" * 100_000
    await store.close()


async def test_one_object_is_read_with_a_login_of_its_own(s3: S3Server) -> None:
    tier = tier_on(s3, bucket="programs")
    await tier.put("folder/main.py", b"result = 1")
    await tier.close()

    def read(place: str, *, bytes_max: int = 100, secret_key: str = s3.login.secret_key) -> bytes:
        return read_s3_object(msgspec.structs.replace(s3.login, secret_key=secret_key), place, bytes_max=bytes_max)

    assert await asyncio.to_thread(read, "s3://programs/folder/main.py") == b"result = 1"
    with pytest.raises(ReferenceNotAvailable, match="NoSuchKey"):
        await asyncio.to_thread(read, "s3://programs/folder/other.py")
    with pytest.raises(Unauthorized):
        await asyncio.to_thread(read, "s3://programs/folder/main.py", secret_key="another")
    with pytest.raises(ConfigError, match=r"expected s3://bucket/key, found 'programs/main\.py'"):
        read("programs/main.py")


async def test_a_full_volume_refuses_a_result_and_shows_nothing_of_it(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    with small(volume, bytes_max=2 * MIB):
        tier = DiskTier(volume, "pvc")
        alone = ResultStore([tier], TierRule(default="pvc"))
        store = ResultStore([tier, DiskTier(tmp_path / "disk")], TierRule(default="pvc"))
        kept = await store.put(1, "step", os.urandom(MIB))
        with pytest.raises(Unavailable, match=r"pvc tier: cannot write .*: (No space left on device|File too large)"):
            await tier.put(KEY, os.urandom(8 * MIB))
        with pytest.raises(ReferenceNotAvailable, match=r"no tier takes it \(tried pvc\)"):
            await alone.put(1, "step", os.urandom(20 * MIB))
        elsewhere = await store.put(1, "step", os.urandom(20 * MIB))
        assert elsewhere.tier == "disk"
        assert [path.name for path in volume.rglob("*") if path.is_file()] == [kept.sha256]
        with pytest.raises(ReferenceNotAvailable):
            await tier.get(f"pvc://{KEY}")
        assert kept.tier == "pvc"
        assert len(await store.read(kept.uri, kept.sha256, kept.compression)) == MIB


@contextmanager
def small(folder: Path, *, bytes_max: int) -> Iterator[None]:
    """Make `folder` a file system of this size; where that is not allowed, no file may become larger than that."""
    libc = ctypes.CDLL(None, use_errno=True)
    is_mounted = libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={bytes_max}".encode()) == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not is_mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if is_mounted:
            libc.umount2(bytes(folder), 2)


async def _begun(server: S3Server) -> None:
    """Return when the server has some of a large object, but not all."""
    before = server.stored_bytes()
    await wait_until(lambda: server.stored_bytes() > before + 20_000_000, what="the beginning of the write")
