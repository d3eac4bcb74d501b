"""The nats tool against a real server: keys, objects, messages, and what is said when something is wrong."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import NotFound
from services.worker.tools import Call, nats

CREDENTIALS: dict[str, dict[str, Any]] = {
    "odd": {"type": "postgres", "data": {}},
    "nobody": {"type": "nats", "data": {"nats_url": "nats://127.0.0.1:1", "user": "ann", "password": "pass-s3cret"}},
}


class Peer:
    """Calls the tool with the credential `here`."""

    def __init__(self, url: str) -> None:
        self.credentials = {**CREDENTIALS, "here": {"type": "nats", "data": {"nats_url": url}}}

    async def credential(self, alias: str) -> dict[str, Any]:
        if alias not in self.credentials:
            raise NotFound(f"no credential {alias!r}")
        return self.credentials[alias]

    async def call(self, operation: str, **config: Any) -> Outcome:
        return await nats.run(
            Call(
                kind="nats",
                label="ask",
                step="ask",
                execution_id=7,
                scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
                credential=self.credential,
                config={"auth": "here", "operation": operation, **config},
                timeout_s=10.0,
            )
        )

    async def done(self, operation: str, **config: Any) -> dict[str, Any]:
        outcome = await self.call(operation, **config)
        assert outcome.ok, outcome.error
        assert isinstance(outcome.data, dict)
        return outcome.data


@pytest.fixture
async def peer(nats_url: str) -> AsyncIterator[Peer]:
    yield Peer(nats_url)
    await nats.close()


@pytest.fixture
async def stream(nats_url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = "".join(letter for letter in request.node.name if letter.isalnum())[:40]
    client = Client()
    await client.connect(nats_url)
    await client.jetstream().add_stream(name=name, subjects=[f"{name}.>"])
    yield name
    await client.jetstream().delete_stream(name)
    await client.close()


async def test_a_value_that_was_put_is_there_until_it_is_deleted(peer: Peer) -> None:
    place = {"bucket": "keys_one", "key": "session"}
    value = {"user": 1, "names": ["é", None], "active": True}
    assert await peer.done("kv_get", **place) == {"status": "not_found", **place, "value": None}
    assert await peer.done("kv_put", **place, value=value) == {"status": "success", **place, "revision": 1}
    found = await peer.done("kv_get", **place)
    assert found == {"status": "success", **place, "revision": 1, "value": value}
    assert await peer.done("kv_delete", **place) == {"status": "success", **place}
    assert (await peer.done("kv_get", **place))["status"] == "not_found"


@pytest.mark.parametrize("value", ["plain text", 12, 1.5, True, None, [1, {"a": 2}], ""])
async def test_a_value_comes_back_as_it_was(peer: Peer, value: Any) -> None:
    place = {"bucket": "keys_two", "key": "k"}
    await peer.done("kv_put", **place, value=value)
    assert (await peer.done("kv_get", **place))["value"] == value


async def test_the_keys_of_a_bucket_are_listed_without_those_purged(peer: Peer) -> None:
    assert (await peer.done("kv_keys", bucket="keys_three"))["keys"] == []
    for key in ("b", "a", "c"):
        await peer.done("kv_put", bucket="keys_three", key=key, value=key)
    await peer.done("kv_purge", bucket="keys_three", key="c")
    assert await peer.done("kv_keys", bucket="keys_three") == {
        "status": "success",
        "bucket": "keys_three",
        "keys": ["a", "b"],
        "count": 2,
    }


async def test_an_object_is_put_read_listed_described_and_deleted(peer: Peer) -> None:
    place = {"bucket": "things", "object": "report"}
    assert (await peer.done("object_get", **place))["status"] == "not_found"
    assert (await peer.done("object_list", bucket="things"))["objects"] == []
    body = {"rows": list(range(50_000))}
    put = await peer.done("object_put", **place, value=body)
    assert put["size"] > 200_000 and put["name"] == "report"
    assert (await peer.done("object_get", **place))["data"] == body
    assert (await peer.done("object_info", **place))["size"] == put["size"]
    assert [entry["name"] for entry in (await peer.done("object_list", bucket="things"))["objects"]] == ["report"]
    assert (await peer.done("object_delete", **place))["status"] == "success"
    assert (await peer.done("object_info", **place))["status"] == "not_found"


async def test_messages_are_published_read_in_bounded_batches_and_acknowledged(peer: Peer, stream: str) -> None:
    for number in range(3):
        sent = await peer.done("js_publish", subject=f"{stream}.a", payload={"n": number}, headers={"X-N": number})
        assert (sent["stream"], sent["seq"], sent["duplicate"]) == (stream, number + 1, False)
    asked = {"stream": stream, "consumer": "reader", "timeout_ms": 200}
    first = await peer.done("js_consume", **asked, batch=2)
    assert [message["data"] for message in first["messages"]] == [{"n": 0}, {"n": 1}]
    assert (first["count"], first["acked"]) == (2, 2) and first["messages"][1]["headers"] == {"X-N": "1"}
    assert [message["seq"] for message in (await peer.done("js_consume", **asked, batch=5000))["messages"]] == [3]
    assert (await peer.done("js_consume", **asked))["count"] == 0
    unnamed = await peer.done("js_consume", stream=stream, batch=10, timeout_ms=200, ack="none")
    assert (unnamed["count"], unnamed["acked"]) == (3, 0)


async def test_a_stream_and_its_messages_are_described(peer: Peer, stream: str) -> None:
    await peer.done("publish", subject=f"{stream}.b", payload="bytes")
    await peer.done("js_publish", subject=f"{stream}.b", payload="again", msg_id="one")
    again = await peer.done("js_publish", subject=f"{stream}.b", payload="again", msg_id="one")
    assert again["duplicate"] is True
    described = await peer.done("js_stream_info", stream=stream)
    assert (described["messages"], described["last_seq"], described["subjects"]) == (2, 2, [f"{stream}.>"])
    assert (await peer.done("js_get_msg", stream=stream, seq=1))["data"] == "bytes"
    assert (await peer.done("js_get_msg", stream=stream, subject=f"{stream}.b"))["seq"] == 2
    assert (await peer.done("js_get_msg", stream=stream, seq=99))["status"] == "not_found"


async def test_bytes_that_are_no_text_come_back_as_base64(peer: Peer, stream: str, nats_url: str) -> None:
    client = Client()
    await client.connect(nats_url)
    await client.jetstream().publish(f"{stream}.raw", b"\xff\x00")
    await client.close()
    found = await peer.done("js_get_msg", stream=stream, seq=1)
    assert (found["data"], found["encoding"]) == (base64.b64encode(b"\xff\x00").decode(), "base64")


async def test_without_a_credential_the_server_of_the_worker_is_used(
    peer: Peer, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", nats_url)
    assert (await peer.done("kv_put", auth=None, bucket="keys_four", key="k", value=1))["revision"] == 1
    monkeypatch.setenv("NATS_URL", "")
    outcome = await peer.call("kv_get", auth=None, bucket="keys_four", key="k")
    assert outcome.error is not None and "NATS_URL" in outcome.error["message"]


@pytest.mark.parametrize(
    ("operation", "fields", "kind", "says"),
    [
        ("kv_take", {}, "config", "operation: expected one of"),
        ("kv_get", {"key": "k"}, "config", "bucket: expected a text, found nothing"),
        ("kv_put", {"bucket": "b"}, "config", "key: expected a text"),
        ("kv_put", {"bucket": "no.dots", "key": "k"}, "nats", "kv_put"),
        ("kv_get", {"auth": "odd", "bucket": "b", "key": "k"}, "config", "type nats, found 'postgres'"),
        ("kv_get", {"auth": "missing", "bucket": "b", "key": "k"}, "config", "no credential 'missing'"),
        ("kv_get", {"auth": "nobody", "bucket": "b", "key": "k"}, "connection", "cannot be reached"),
        ("js_consume", {"stream": "nowhere"}, "nats", "js_consume"),
        ("js_consume", {"stream": "s", "batch": 0}, "config", "batch: expected 1 to 1000, found 0"),
        ("js_consume", {"stream": "s", "ack": "perhaps"}, "config", "ack: expected one of"),
        ("js_publish", {"subject": "no.stream.takes.it"}, "nats", "no stream takes subject"),
        ("js_get_msg", {"stream": "s"}, "config", "expected `seq`"),
        ("js_stream_info", {"stream": "nowhere"}, "nats", "js_stream_info"),
    ],
)
async def test_what_is_wrong_is_an_error_outcome_that_says_it(
    peer: Peer, operation: str, fields: dict[str, Any], kind: str, says: str
) -> None:
    outcome = await peer.call(operation, **fields)
    assert outcome.error is not None and outcome.error["kind"] == kind, outcome
    assert says in outcome.error["message"] and "s3cret" not in str(outcome.error)
