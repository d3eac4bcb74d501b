"""Copies in NATS: read first, never missed, never waited for; what a payload is called does not depend on them."""

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import nats
import pytest

from noetl_cli.embedded import start_nats
from noetl_cli.embedded.server import Server
from noetl_common import metrics
from noetl_common.bus_values import NatsValues
from noetl_common.core.values import KV_COPY_BYTES_MAX, KV_COPY_BYTES_MIN, Ref, TierRule
from noetl_common.errors import ReferenceNotAvailable, Unavailable
from noetl_common.store.disk import DiskTier
from noetl_common.store.kv import Copies, KvTier
from noetl_common.store.results import ResultStore, Stored
from tests.running import wait_until
from tests.servers import nats_server
from tests.volumes import mounted

TEXT = b'{"rows": "' + b"abc" * 40_000 + b'"}'
NOISE = os.urandom(KV_COPY_BYTES_MAX)
RULE = TierRule(copies=True)


@pytest.fixture
async def values(nats_url: str) -> AsyncIterator[NatsValues]:
    made = NatsValues(nats_url, bucket=f"copies-{uuid4().hex[:12]}")
    yield made
    await made.close()


def store_in(folder: Path, values: NatsValues) -> ResultStore:
    return ResultStore([DiskTier(folder)], RULE, copies=Copies(KvTier(values)))


def without_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


def ref_to(stored: Stored) -> Ref:
    return Ref(execution_id=1, ref_id=2, tier=stored.tier, bytes=stored.bytes, sha256=stored.sha256, label="step")


@pytest.mark.parametrize("payload", [TEXT, NOISE], ids=["compressed", "as it is"])
async def test_a_copy_is_read_first_and_the_uri_names_the_durable_place(
    tmp_path: Path, values: NatsValues, payload: bytes
) -> None:
    store = store_in(tmp_path, values)
    stored = await store.put(1, "step", payload)
    assert stored.tier == "kv" and stored.uri.startswith("disk://exec/1/step/")
    without_files(tmp_path)
    assert await store.read(stored.uri, stored.sha256, stored.compression, is_copied=True) == payload
    assert await store.read_ref(ref_to(stored)) == payload
    with pytest.raises(ReferenceNotAvailable):
        await store.read(stored.uri, stored.sha256, stored.compression)


async def test_an_author_may_ask_for_a_copy_of_any_size_that_nats_takes(tmp_path: Path, values: NatsValues) -> None:
    store = store_in(tmp_path, values)
    small, large = os.urandom(KV_COPY_BYTES_MIN - 1), os.urandom(KV_COPY_BYTES_MAX + 1)
    stored = [await store.put(1, "step", payload, wanted="kv") for payload in (small, large)]
    assert [one.tier for one in stored] == ["kv", "disk"]
    assert [await store.read_ref(ref_to(one)) for one in stored] == [small, large]
    without_files(tmp_path)
    assert await store.read_ref(ref_to(stored[0])) == small


@pytest.mark.parametrize("size", [KV_COPY_BYTES_MIN - 1, KV_COPY_BYTES_MAX + 1])
async def test_what_is_smaller_or_larger_is_not_copied(tmp_path: Path, values: NatsValues, size: int) -> None:
    store = store_in(tmp_path, values)
    stored = await store.put(1, "step", os.urandom(size))
    assert stored.tier == "disk"
    assert await values.get(f"exec/1/step/{stored.sha256}") is None


@pytest.mark.parametrize("damage", [b"", b"n", b"gnot gzip", b"x" * 100, b"n" + NOISE[:-1], None])
async def test_a_copy_that_is_gone_or_damaged_is_never_missed(
    tmp_path: Path, values: NatsValues, damage: bytes | None
) -> None:
    store = store_in(tmp_path, values)
    stored = await store.put(1, "step", NOISE)
    key = f"exec/1/step/{stored.sha256}"
    await (values.delete(key) if damage is None else values.put(key, damage))
    assert await store.read(stored.uri, stored.sha256, stored.compression, is_copied=True) == NOISE
    assert await store.read_ref(ref_to(stored)) == NOISE


async def test_a_payload_goes_with_its_copy(tmp_path: Path, values: NatsValues) -> None:
    store = store_in(tmp_path, values)
    stored = await store.put(1, "step", TEXT)
    await store.delete(stored.uri, is_copied=True)
    assert await values.get(f"exec/1/step/{stored.sha256}") is None
    assert await store.read_ref(ref_to(stored)) is None


async def test_values_go_when_their_time_is_over(nats_url: str) -> None:
    values = NatsValues(nats_url, bucket=f"short-{uuid4().hex[:12]}", ttl_s=1.0)
    await values.put("a", b"1")
    assert await values.get("a") == b"1"

    async def gone() -> bool:
        return await values.get("a") is None

    await wait_until(gone, what="the value's end")
    await values.close()


async def test_a_bucket_of_other_limits_is_taken_and_changed(nats_url: str) -> None:
    bucket = f"changed-{uuid4().hex[:12]}"
    for ttl_s in (60.0, 600.0):
        values = NatsValues(nats_url, bucket=bucket, ttl_s=ttl_s)
        await values.put("a", b"1")
        assert await values.get("a") == b"1"
        await values.close()


async def test_without_nats_nothing_waits_and_nothing_is_called_otherwise(tmp_path: Path) -> None:
    with nats_server() as server:
        values = NatsValues(server.url, bucket="copies")
        store = store_in(tmp_path, values)
        server.stop()
        began = time.monotonic()
        for number in range(50):
            payload = os.urandom(KV_COPY_BYTES_MIN) + str(number).encode()
            stored = await store.put(1, "step", payload)
            assert stored.tier == "kv"
            assert await store.read(stored.uri, stored.sha256, stored.compression, is_copied=True) == payload
        assert time.monotonic() - began < 2.0
        port = int(server.url.rpartition(":")[2])
        with nats_server(port=port):
            await _copying_again(store, values)
        await values.close()


async def test_a_server_that_hangs_costs_one_wait(tmp_path: Path, own_nats: Server) -> None:
    values = NatsValues(own_nats.url, bucket="copies")
    store = store_in(tmp_path, values)
    await store.put(1, "step", NOISE)
    os.kill(own_nats.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        stored = await store.put(1, "step", TEXT)
        assert time.monotonic() - began < 1.0
        began = time.monotonic()
        for _ in range(20):
            assert await store.read(stored.uri, stored.sha256, stored.compression, is_copied=True) == TEXT
        assert time.monotonic() - began < 0.4
    finally:
        os.kill(own_nats.pid, signal.SIGCONT)
    await _copying_again(store, values)
    await values.close()


async def test_a_bucket_that_was_removed_is_made_again(tmp_path: Path, own_nats: Server) -> None:
    values = NatsValues(own_nats.url, bucket="copies")
    store = store_in(tmp_path, values)
    await _copying_again(store, values)

    client = await nats.connect(own_nats.url)
    await client.jetstream().delete_key_value("copies")
    await client.close()
    with pytest.raises(Unavailable):
        await values.put("a", b"1")
    await _copying_again(store, values)
    await values.close()


async def _copying_again(store: ResultStore, values: NatsValues) -> None:
    """Return when a new payload gets its copy, which must be soon."""

    async def copied() -> bool:
        payload = os.urandom(KV_COPY_BYTES_MIN)
        await store.put(1, "step", payload)
        try:
            return await values.get(f"exec/1/step/{hashlib.sha256(payload).hexdigest()}") is not None
        except Unavailable:
            await asyncio.sleep(0.05)
            return False

    await wait_until(copied, timeout_s=5.0, what="a new copy")


async def test_a_volume_of_nats_that_is_full_costs_the_copy_alone(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with mounted(tmp_path / "server", bytes_max=1 << 20), running_nats(tmp_path / "server") as server:
        made = NatsValues(server.url, bucket="copies")
        try:
            store = store_in(tmp_path / "durable", made)
            payloads = [os.urandom(KV_COPY_BYTES_MAX // 2) for _ in range(8)]
            before = refused()
            stored = [await store.put(1, "step", payload) for payload in payloads]
            assert refused() > before, "every copy found a place"
            read = [await store.read(one.uri, one.sha256, one.compression, is_copied=True) for one in stored]
            assert read == payloads
        finally:
            await made.close()


def refused() -> float:
    return metrics.value("noetl_object_store_ops_total", tier="kv", op="put", outcome="error")


@contextmanager
def running_nats(folder: Path) -> Iterator[Server]:
    server = start_nats(folder)
    try:
        yield server
    finally:
        server.stop()
