"""One suite for every result tier: folders, S3, Google Cloud Storage, values in NATS."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from noetl_common.bus_values import NatsValues
from noetl_common.errors import ReferenceNotAvailable
from noetl_common.store import Tier
from noetl_common.store.disk import DiskTier
from noetl_common.store.gcs import GcsObjects
from noetl_common.store.kv import KvTier
from noetl_common.store.objects import ObjectTier
from noetl_common.store.s3 import S3Objects
from tests.object_stores import GcsServer, S3Server

KEY = "exec/1/step/abc"


@pytest.fixture(params=["disk", "pvc", "minio", "s3", "gcs", "kv"])
async def tier(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tier]:
    made = _made(request, tmp_path)
    await made.start()
    yield made
    await made.close()


def _made(request: pytest.FixtureRequest, folder: Path) -> Tier:
    name = request.param
    unique = f"bucket-{uuid4().hex[:12]}"
    if name in ("disk", "pvc"):
        return DiskTier(folder / "results", name)
    if name == "kv":
        return KvTier(NatsValues(request.getfixturevalue("nats_url"), bucket=unique))
    if name == "gcs":
        server: GcsServer = request.getfixturevalue("gcs")
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        for variable, value in server.environ.items():
            patch.setenv(variable, value)
        return ObjectTier(GcsObjects(unique), "gcs")
    s3: S3Server = request.getfixturevalue("s3")
    return ObjectTier(S3Objects(s3.login, unique), name)


async def test_what_was_put_comes_back(tier: Tier) -> None:
    uri = await tier.put(KEY, b"payload")
    assert uri == f"{tier.name}://{KEY}"
    assert await tier.get(uri) == b"payload"


async def test_starting_again_changes_nothing(tier: Tier) -> None:
    uri = await tier.put(KEY, b"payload")
    await tier.start()
    assert await tier.get(uri) == b"payload"


async def test_an_empty_payload_and_a_large_one_come_back(tier: Tier) -> None:
    large = os.urandom(1_000_001 if tier.name == "kv" else 3_000_000)
    uris = [await tier.put("exec/1/a/empty", b""), await tier.put("exec/1/a/large", large)]
    assert [await tier.get(uri) for uri in uris] == [b"", large]


async def test_a_file_is_stored_whole_wherever_it_was_read_up_to(tier: Tier) -> None:
    payload = os.urandom(1_000_001 if tier.name == "kv" else 40_000_000)
    with tempfile.TemporaryFile() as file:
        file.write(payload)
        file.seek(777)
        uri = await tier.put_file(KEY, file)
        assert uri == await tier.put_file(KEY, file) == f"{tier.name}://{KEY}"
    assert await tier.get(uri) == payload
    assert await tier.get_range(uri, offset=len(payload) - 5, length=9) == payload[-5:]


async def test_a_part_comes_back(tier: Tier) -> None:
    payload = os.urandom(100_000)
    uri = await tier.put(KEY, payload)
    for offset, length in ((0, 1), (0, 100_000), (99_999, 1), (777, 1234), (99_990, 100), (100_000, 5), (5, 0)):
        assert await tier.get_range(uri, offset=offset, length=length) == payload[offset : offset + length]


async def test_putting_the_same_again_is_harmless_even_at_once(tier: Tier) -> None:
    payload = os.urandom(70_000)
    first = await tier.put(KEY, payload)
    uris = await asyncio.gather(*(tier.put(KEY, payload) for _ in range(8)))
    assert {first} == set(uris)
    assert await tier.get(first) == payload


async def test_what_is_not_there_is_named(tier: Tier) -> None:
    await tier.put(KEY, b"another")
    with pytest.raises(ReferenceNotAvailable, match="exec/9/none"):
        await tier.get(f"{tier.name}://exec/9/none/0")
    with pytest.raises(ReferenceNotAvailable, match="exec/9/none"):
        await tier.get_range(f"{tier.name}://exec/9/none/0", offset=0, length=3)


async def test_deleting_removes_and_deleting_again_does_nothing(tier: Tier) -> None:
    uri = await tier.put(KEY, b"payload")
    await tier.delete(uri)
    await tier.delete(uri)
    with pytest.raises(ReferenceNotAvailable):
        await tier.get(uri)


@pytest.mark.parametrize("key", ["../outside", "exec/../../outside", "/etc/passwd", "exec//x", "", "a/./b", "a\0b"])
async def test_a_key_that_leads_out_of_the_root_is_refused(tier: Tier, key: str) -> None:
    for attempt in (tier.get(f"{tier.name}://{key}"), tier.put(key, b"x"), tier.delete(f"{tier.name}://{key}")):
        with pytest.raises(ReferenceNotAvailable, match="inside the"):
            await attempt


async def test_the_uri_of_another_tier_is_refused(tier: Tier) -> None:
    with pytest.raises(ReferenceNotAvailable, match="expected a uri of"):
        await tier.get(f"db://{KEY}")


async def test_what_was_put_is_listed_page_by_page(tier: Tier) -> None:
    keys = ["exec/1/a-b/1", "exec/1/a/1", "exec/1/a/2", "exec/10/a/1", "exec/2/a/1", "other/1"]
    for key in keys:
        await tier.put(key, b"payload")
    found: list[str] = []
    while page := await tier.list_uris("exec/", after=found[-1] if found else "", limit=2):
        assert len(page) <= 2
        found += page
    assert sorted(found) == sorted(f"{tier.name}://{key}" for key in keys if key.startswith("exec/"))
    assert len(await tier.list_uris("", limit=100)) == len(keys)
    assert await tier.list_uris("none/") == []
    await tier.delete(f"{tier.name}://exec/1/a/1")
    assert f"{tier.name}://exec/1/a/1" not in await tier.list_uris("exec/")
