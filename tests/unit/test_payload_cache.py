"""The cache of payloads has a limit in memory, whether a few large ones fill it or many small ones."""

import contextlib

import pytest

from noetl_common.core.scope import NeedPayload
from noetl_common.core.values import Ref
from services.ingest.payloads import ENTRY_BYTES, PayloadCache


def ref(ref_id: int) -> Ref:
    return Ref(execution_id=1, ref_id=ref_id, label="s", bytes=1, sha256="")


def held(cache: PayloadCache, count: int) -> int:
    found = 0
    for ref_id in range(count):
        with contextlib.suppress(NeedPayload):
            found += cache.load(ref(ref_id), None) is not None
    return found


@pytest.mark.parametrize("payload_bytes", [1, 10, 10_000])
def test_many_small_payloads_count_with_what_they_take_beside_their_text(payload_bytes: int) -> None:
    limit = 100 * (ENTRY_BYTES + payload_bytes)
    cache = PayloadCache(limit)
    for ref_id in range(1_000):
        cache.put_encoded(1, ref_id, b"1".rjust(payload_bytes))
    assert held(cache, 1_000) == 100


def test_what_is_put_twice_counts_once() -> None:
    cache = PayloadCache(3 * (ENTRY_BYTES + 1))
    for ref_id in (1, 2, 1, 1, 1):
        cache.put_encoded(1, ref_id, b"1")
    cache.forget(1, 2)
    cache.put_encoded(1, 3, b"1")
    cache.put_encoded(1, 4, b"1")
    assert held(cache, 5) == 3
