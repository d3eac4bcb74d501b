"""One suite for every result tier, and the store that chooses among them."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from noetl_common.errors import ConfigError, ReferenceCorrupt, ReferenceNotAvailable, Unavailable
from noetl_common.store import Tier
from noetl_common.store.disk import DiskTier
from noetl_common.store.results import ResultStore, key_of, open_store

KEY = "exec/1/step/abc"
LARGE = json.dumps({"rows": [{"id": n, "name": f"name {n}"} for n in range(2000)]}).encode()


@pytest.fixture(params=["disk", "pvc"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    return DiskTier(tmp_path / "results", request.param)


async def test_what_was_put_comes_back(tier: Tier) -> None:
    uri = await tier.put(KEY, b"payload")
    assert uri == f"{tier.name}://{KEY}"
    assert await tier.get(uri) == b"payload"


async def test_an_empty_payload_and_a_large_one_come_back(tier: Tier) -> None:
    large = os.urandom(3_000_000)
    uris = [await tier.put("exec/1/a/empty", b""), await tier.put("exec/1/a/large", large)]
    assert [await tier.get(uri) for uri in uris] == [b"", large]


async def test_putting_the_same_again_is_harmless_even_at_once(tier: Tier) -> None:
    uris = await asyncio.gather(*(tier.put(KEY, LARGE) for _ in range(8)))
    assert len(set(uris)) == 1
    assert await tier.get(uris[0]) == LARGE


async def test_what_is_not_there_is_named(tier: Tier) -> None:
    with pytest.raises(ReferenceNotAvailable, match="exec/9/none"):
        await tier.get(f"{tier.name}://exec/9/none/0")


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
        await tier.get(f"s3://{KEY}")


async def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "exec").symlink_to(tmp_path)
    with pytest.raises(ReferenceNotAvailable, match="inside the"):
        await DiskTier(tmp_path / "results").get("disk://exec/secret")


async def test_no_half_written_file_is_left(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path)
    await disk.put(KEY, b"payload")
    assert files_below(tmp_path) == ["abc"]


async def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable):
        await DiskTier(tmp_path / "file").put(KEY, b"x")


async def test_a_small_payload_rides_in_its_row(tmp_path: Path) -> None:
    stored = await open_store("disk", tmp_path).write(1, "step", b'{"a":1}')
    assert (stored.tier, stored.uri, stored.bytes) == ("db", "", 7)
    assert stored.inline is not None and bytes(stored.inline) == b'{"a":1}'
    assert stored.sha256 == hashlib.sha256(b'{"a":1}').hexdigest()
    assert files_below(tmp_path) == []


async def test_a_large_payload_is_compressed_and_read_back_whole(tmp_path: Path) -> None:
    store = open_store("disk", tmp_path)
    stored = await store.write(1, "step", LARGE)
    assert (stored.tier, stored.compression, stored.bytes, stored.inline) == ("disk", "gzip", len(LARGE), None)
    assert stored.uri == f"disk://{key_of(1, 'step', stored.sha256, compression='gzip')}"
    assert (tmp_path / stored.uri.removeprefix("disk://")).stat().st_size < len(LARGE) / 2
    assert await store.read(stored.uri, stored.sha256, stored.compression) == LARGE


async def test_a_payload_that_does_not_shrink_is_stored_as_it_is(tmp_path: Path) -> None:
    store = open_store("disk", tmp_path)
    noise = os.urandom(20_000)
    stored = await store.write(1, "step", noise)
    assert stored.compression == "none"
    assert await store.read(stored.uri, stored.sha256, stored.compression) == noise


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-5], lambda b: b[:50] + b"\xff" + b[51:], lambda b: b"", lambda b: b"x" * 9]
)
async def test_a_damaged_payload_is_never_returned(tmp_path: Path, damage: "object") -> None:
    assert callable(damage)
    store = open_store("disk", tmp_path)
    stored = await store.write(1, "step", LARGE)
    path = tmp_path / stored.uri.removeprefix("disk://")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ReferenceCorrupt):
        await store.read(stored.uri, stored.sha256, stored.compression)


async def test_another_tier_takes_what_the_default_does_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ResultStore([DiskTier(tmp_path / "other", "pvc"), DiskTier(tmp_path / "file", "disk")], "disk")
    stored = await store.write(1, "step", LARGE)
    assert stored.tier == "pvc"
    assert await store.read(stored.uri, stored.sha256, stored.compression) == LARGE


async def test_when_no_tier_takes_a_payload_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ReferenceNotAvailable, match="no tier takes it"):
        await open_store("disk", tmp_path / "file").write(1, "step", LARGE)


async def test_a_step_name_never_shapes_the_path() -> None:
    assert key_of(1, "../../etc/pass wd.ü", "ab") == "exec/1/_etc_pass_wd_/ab"
    assert key_of(1, "", "ab") == "exec/1/_/ab"


async def test_a_tier_without_a_writer_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected disk or pvc, found 's3'"):
        open_store("s3", tmp_path)
    with pytest.raises(ConfigError, match="found 's3'"):
        ResultStore([DiskTier(tmp_path)], "s3")


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
