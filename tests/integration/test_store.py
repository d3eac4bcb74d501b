"""The store that chooses among tiers, and what is special about a folder."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from noetl_common.config import load
from noetl_common.core.values import Ref, TierRule, ref_in
from noetl_common.errors import ConfigError, ReferenceCorrupt, ReferenceNotAvailable, Unavailable
from noetl_common.store.config import Stores, open_store
from noetl_common.store.disk import DiskTier
from noetl_common.store.results import ResultStore, key_of
from tests.builders import disk_store

KEY = "exec/1/step/abc"
LARGE = json.dumps({"rows": [{"id": n, "name": f"name {n}"} for n in range(2000)]}).encode()


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
    stored = await disk_store(tmp_path).write(1, "step", b'{"a":1}')
    assert (stored.tier, stored.uri, stored.bytes) == ("db", "", 7)
    assert stored.inline is not None and bytes(stored.inline) == b'{"a":1}'
    assert stored.sha256 == hashlib.sha256(b'{"a":1}').hexdigest()
    assert files_below(tmp_path) == []


async def test_a_large_payload_is_compressed_and_read_back_whole(tmp_path: Path) -> None:
    store = disk_store(tmp_path)
    stored = await store.write(1, "step", LARGE)
    assert (stored.tier, stored.compression, stored.bytes, stored.inline) == ("disk", "gzip", len(LARGE), None)
    assert stored.uri == f"disk://{key_of(1, 'step', stored.sha256, compression='gzip')}"
    assert (tmp_path / stored.uri.removeprefix("disk://")).stat().st_size < len(LARGE) / 2
    assert await store.read(stored.uri, stored.sha256, stored.compression) == LARGE


async def test_a_payload_that_does_not_shrink_is_stored_as_it_is(tmp_path: Path) -> None:
    store = disk_store(tmp_path)
    noise = os.urandom(20_000)
    stored = await store.write(1, "step", noise)
    assert stored.compression == "none"
    assert await store.read(stored.uri, stored.sha256, stored.compression) == noise


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-5], lambda b: b[:50] + b"\xff" + b[51:], lambda b: b"", lambda b: b"x" * 9]
)
async def test_a_damaged_payload_is_never_returned(tmp_path: Path, damage: "object") -> None:
    assert callable(damage)
    store = disk_store(tmp_path)
    stored = await store.write(1, "step", LARGE)
    path = tmp_path / stored.uri.removeprefix("disk://")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ReferenceCorrupt):
        await store.read(stored.uri, stored.sha256, stored.compression)


async def test_another_tier_takes_what_the_default_does_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ResultStore([DiskTier(tmp_path / "other", "pvc"), DiskTier(tmp_path / "file", "disk")], TierRule())
    stored = await store.write(1, "step", LARGE)
    assert stored.tier == "pvc"
    assert await store.read(stored.uri, stored.sha256, stored.compression) == LARGE


async def test_when_no_tier_takes_a_payload_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ReferenceNotAvailable, match="no tier takes it"):
        await disk_store(tmp_path / "file").write(1, "step", LARGE)


async def test_a_step_name_never_shapes_the_path() -> None:
    assert key_of(1, "../../etc/pass wd.ü", "ab") == "exec/1/_etc_pass_wd_/ab"
    assert key_of(1, "", "ab") == "exec/1/_/ab"


def test_a_payloads_tier_follows_from_its_size_and_the_settings() -> None:
    plain, copied = TierRule(default="s3"), TierRule(default="s3", copies=True, pvc_over_bytes=500_000)
    assert [plain.of(size) for size in (0, 8192, 8193, 65_536, 2_000_000)] == ["db", "db", "s3", "s3", "s3"]
    sizes = (8192, 65_535, 65_536, 1_000_000, 1_000_001)
    assert [copied.of(size) for size in sizes] == ["db", "s3", "kv", "kv", "pvc"]
    assert [copied.durable(size) for size in sizes] == ["s3", "s3", "s3", "pvc", "pvc"]


MINIO = {"minio_endpoint": "http://127.0.0.1:9", "minio_access_key": "a", "minio_secret_key": "b"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"default_store_tier": "pvc"}, "NOETL_PVC_MOUNT_PATH: expected a value, because the pvc tier is configured"),
        ({"default_store_tier": "minio"}, "NOETL_MINIO_ENDPOINT: expected a value"),
        ({"default_store_tier": "s3"}, "NOETL_S3_ACCESS_KEY: expected a value"),
        ({"default_store_tier": "gcs"}, "NOETL_GCS_BUCKET: expected a value"),
        ({"store_fallback_tiers": ("kv",)}, "NOETL_STORE_FALLBACK_TIERS: expected tiers out of disk, pvc, .*'kv'"),
        ({**MINIO, "default_store_tier": "minio", "minio_endpoint": "127.0.0.1:9"}, "expected http://host:port"),
        ({"nats_url": "http://x"}, "NATS_URL: expected nats://"),
    ],
)
def test_a_tier_that_lacks_a_setting_is_a_configuration_error(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(Stores(database_url="", **settings))


def test_the_durable_tier_is_never_kv() -> None:
    with pytest.raises(ConfigError, match="NOETL_DEFAULT_STORE_TIER: expected one of disk, pvc, minio, s3, gcs"):
        load(Stores, {"DATABASE_URL": "x", "NOETL_DEFAULT_STORE_TIER": "kv"})
    with pytest.raises(ConfigError, match="found 's3'"):
        ResultStore([], TierRule(default="s3"))


async def test_the_tier_of_old_is_disk_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(Stores(database_url="", default_store_tier="object", store_dir=str(tmp_path)))
    stored = await store.write(1, "step", LARGE)
    assert stored.tier == "disk"
    assert [record.getMessage() for record in caplog.records].count("store.tier_renamed") == 1
    old = {"execution_id": 1, "ref_id": 2, "tier": "object", "bytes": 9, "kind": "result_ref"}
    assert ref_in(old).tier == "disk"


async def test_a_volume_takes_what_is_over_its_threshold(tmp_path: Path) -> None:
    folders = {"store_dir": str(tmp_path / "disk"), "pvc_mount_path": str(tmp_path / "volume")}
    store = open_store(Stores(database_url="", pvc_over_bytes=len(LARGE) - 1, **folders))
    await store.start()
    above, below = await store.write(1, "step", LARGE), await store.write(1, "step", LARGE[1:])
    assert (above.tier, below.tier) == ("pvc", "disk")
    assert [await store.read(one.uri, one.sha256, one.compression) for one in (above, below)] == [LARGE, LARGE[1:]]


async def test_the_tier_that_an_author_names_is_taken_when_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ResultStore([DiskTier(tmp_path / "disk"), DiskTier(tmp_path / "volume", "pvc")], TierRule())
    stored = await store.put(1, "step", LARGE, wanted="pvc")
    assert stored.tier == "pvc" and stored.uri.startswith("pvc://")
    assert await store.read_ref(Ref(execution_id=1, ref_id=1, tier="pvc", sha256=stored.sha256, label="step")) == LARGE
    for wanted in ("s3", "kv", "s3", ""):
        assert (await store.put(1, "step", LARGE, wanted=wanted)).tier == "disk"
    missed = [record for record in caplog.records if "store.tier_not_configured" in record.getMessage()]
    assert len(missed) == 2, "s3 and kv, each told once"


async def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = disk_store(tmp_path / "file" / "results")
    with pytest.raises(ConfigError, match="disk tier: cannot make"):
        await store.start()


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
