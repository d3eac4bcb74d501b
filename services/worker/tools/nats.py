"""The nats tool: keys and objects in buckets, publishing, bounded reading of a stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, ObjectStoreConfig
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from noetl_common.config import env, load
from noetl_common.core.outcome import Outcome
from noetl_common.db import json_text
from noetl_common.errors import Invalid, NoetlError, NotFound, Unavailable
from services.worker.tools import Call, failed
from services.worker.tools.nats_connections import Login, connections
from services.worker.tools.nats_messages import consume, content_of, get_message, headers_of

OBJECT_BYTES_MAX = 64 * 1024 * 1024
Fields = Mapping[str, Any]
Operation = Callable[[Client, Fields], Awaitable[dict[str, Any]]]


class OwnServer(msgspec.Struct, frozen=True, kw_only=True):
    """The server of a task that names no credential: the worker's."""

    nats_url: Annotated[str, env("NATS_URL", doc="NATS, as nats://host:4222; empty: run without it.", secret=True)] = ""


async def run(call: Call) -> Outcome:
    """Return what `operation` came to: always {status, ...}; status not_found for a key or object that is not there.

    A bucket is made when it is missing. Errors: none is raised; error.kind is connection, timeout, config or nats.
    """
    config = {**call.input, **call.config}
    name = str(config.get("operation") or "")
    try:
        operation = OPERATIONS.get(name)
        if operation is None:
            raise Invalid(f"operation: expected one of {', '.join(sorted(OPERATIONS))}, found {name!r}")
        async with asyncio.timeout(call.timeout_s):
            client = await connections().client(await _login(call))
            return Outcome(data=await operation(client, config))
    except (TimeoutError, nats.errors.TimeoutError):
        return failed("timeout", f"nats: {name}: no answer in time", code="NATS_TIMEOUT", retryable=True)
    except Unavailable as exc:
        return failed("connection", f"nats: {exc}", code="NATS_CONNECTION", retryable=True)
    except NoetlError as exc:
        code = "CREDENTIAL_NOT_FOUND" if isinstance(exc, NotFound) else exc.code
        return failed("config", f"nats: {name}: {exc}" if name in OPERATIONS else f"nats: {exc}", code=code)
    except nats.js.errors.NoStreamResponseError:
        return failed("nats", f"nats: {name}: no stream takes subject {config.get('subject')!r}", code="NATS_NO_STREAM")
    except nats.js.errors.Error as exc:
        return failed("nats", f"nats: {name}: {_text(exc)}", code="NATS_REFUSED")
    except (nats.errors.Error, OSError) as exc:
        return failed("connection", f"nats: {name}: {_text(exc)}", code="NATS_CONNECTION", retryable=True)
    except ValueError as exc:
        return failed("config", f"nats: {name}: {_text(exc)}", code="INVALID")


async def close() -> None:
    """Close the connections of the running event loop; the worker calls this when it stops."""
    await connections().close()


async def _login(call: Call) -> Login:
    auth = call.config.get("auth") or call.config.get("credential")
    if isinstance(auth, dict):
        fields, auth = auth, auth.get("credential") or auth.get("alias")
    else:
        fields = {}
    if isinstance(auth, str):
        record = await call.credential(auth)
        kind = str(record.get("type") or "nats").lower()
        if kind != "nats":
            raise Invalid(f"auth: expected a credential of type nats, found {kind!r}")
        fields = record.get("data") or {}
    elif auth:
        raise Invalid(f"auth: expected a credential's name, found {type(auth).__name__}")
    url = fields.get("nats_url") or fields.get("url") or load(OwnServer).nats_url
    if not isinstance(url, str) or not url:
        raise Invalid("expected `auth` naming a credential of type nats, or a worker with NATS_URL, found neither")
    user, password, token = (str(fields.get(name) or "") for name in ("username", "password", "token"))
    return Login(url=url, user=str(fields.get("user") or user), password=password, token=token)


async def _kv(client: Client, fields: Fields) -> KeyValue:
    bucket = _named(fields, "bucket")
    stream = client.jetstream()
    try:
        return await stream.key_value(bucket)
    except nats.js.errors.NotFoundError:
        return await stream.create_key_value(KeyValueConfig(bucket=bucket))


async def _objects(client: Client, fields: Fields) -> ObjectStore:
    bucket = _named(fields, "bucket")
    stream = client.jetstream()
    try:
        return await stream.object_store(bucket)
    except nats.js.errors.NotFoundError:
        return await stream.create_object_store(bucket, ObjectStoreConfig(bucket=bucket))


async def _kv_put(client: Client, fields: Fields) -> dict[str, Any]:
    key, body = _named(fields, "key"), _body(fields)
    revision = await (await _kv(client, fields)).put(key, body)
    return {"status": "success", "bucket": fields["bucket"], "key": key, "revision": revision}


async def _kv_get(client: Client, fields: Fields) -> dict[str, Any]:
    key = _named(fields, "key")
    place = {"bucket": fields.get("bucket"), "key": key}
    try:
        entry = await (await _kv(client, fields)).get(key)
    except nats.js.errors.KeyNotFoundError:
        return {"status": "not_found", **place, "value": None}
    return {"status": "success", **place, "revision": entry.revision, "value": content_of(entry.value or b"")[0]}


async def _kv_delete(client: Client, fields: Fields) -> dict[str, Any]:
    key = _named(fields, "key")
    await (await _kv(client, fields)).delete(key)
    return {"status": "success", "bucket": fields["bucket"], "key": key}


async def _kv_purge(client: Client, fields: Fields) -> dict[str, Any]:
    key = _named(fields, "key")
    await (await _kv(client, fields)).purge(key)
    return {"status": "success", "bucket": fields["bucket"], "key": key}


async def _kv_keys(client: Client, fields: Fields) -> dict[str, Any]:
    try:
        keys = sorted(await (await _kv(client, fields)).keys())
    except nats.js.errors.NoKeysError:
        keys = []
    return {"status": "success", "bucket": fields["bucket"], "keys": keys, "count": len(keys)}


async def _object_put(client: Client, fields: Fields) -> dict[str, Any]:
    name, body = _object_name(fields), _body(fields)
    if len(body) > OBJECT_BYTES_MAX:
        raise Invalid(f"value: expected at most {OBJECT_BYTES_MAX} bytes, found {len(body)}")
    info = await (await _objects(client, fields)).put(name, body)
    return {"status": "success", "bucket": fields["bucket"], "name": name, "size": info.size, "digest": info.digest}


async def _object_get(client: Client, fields: Fields) -> dict[str, Any]:
    name = _object_name(fields)
    place = {"bucket": fields.get("bucket"), "name": name}
    objects = await _objects(client, fields)
    try:
        size = (await objects.get_info(name)).size or 0
        if size > OBJECT_BYTES_MAX:
            raise Invalid(f"object {name!r}: expected at most {OBJECT_BYTES_MAX} bytes, found {size}")
        body = (await objects.get(name)).data or b""
    except nats.js.errors.NotFoundError:
        return {"status": "not_found", **place, "data": None}
    data, encoding = content_of(body)
    return {"status": "success", **place, "size": size, "data": data, **({"encoding": encoding} if encoding else {})}


async def _object_delete(client: Client, fields: Fields) -> dict[str, Any]:
    name = _object_name(fields)
    place = {"bucket": fields.get("bucket"), "name": name}
    try:
        await (await _objects(client, fields)).delete(name)
    except nats.js.errors.NotFoundError:
        return {"status": "not_found", **place}
    return {"status": "success", **place}


async def _object_info(client: Client, fields: Fields) -> dict[str, Any]:
    name = _object_name(fields)
    place = {"bucket": fields.get("bucket"), "name": name}
    try:
        info = await (await _objects(client, fields)).get_info(name)
    except nats.js.errors.NotFoundError:
        return {"status": "not_found", **place}
    return {"status": "success", **place, "size": info.size, "chunks": info.chunks, "digest": info.digest}


async def _object_list(client: Client, fields: Fields) -> dict[str, Any]:
    try:
        found = await (await _objects(client, fields)).list()
    except nats.js.errors.NotFoundError:
        found = []
    objects = [{"name": info.name, "size": info.size, "digest": info.digest} for info in found]
    objects.sort(key=lambda entry: str(entry["name"]))
    return {"status": "success", "bucket": fields["bucket"], "objects": objects, "count": len(objects)}


async def _js_publish(client: Client, fields: Fields) -> dict[str, Any]:
    subject, headers = _named(fields, "subject"), headers_of(fields)
    if fields.get("msg_id"):
        headers = {**(headers or {}), "Nats-Msg-Id": str(fields["msg_id"])}
    taken = await client.jetstream().publish(subject, _body(fields), headers=headers)
    place = {"subject": subject, "stream": taken.stream, "seq": taken.seq}
    return {"status": "success", **place, "duplicate": bool(taken.duplicate)}


async def _js_consume(client: Client, fields: Fields) -> dict[str, Any]:
    return await consume(client, _named(fields, "stream"), fields)


async def _js_get_msg(client: Client, fields: Fields) -> dict[str, Any]:
    return await get_message(client, _named(fields, "stream"), fields)


async def _js_stream_info(client: Client, fields: Fields) -> dict[str, Any]:
    stream: JetStreamContext = client.jetstream()
    info = await stream.stream_info(_named(fields, "stream"))
    state = info.state
    return {
        "status": "success",
        "stream": info.config.name,
        "subjects": info.config.subjects or [],
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "consumer_count": state.consumer_count,
    }


async def _publish(client: Client, fields: Fields) -> dict[str, Any]:
    subject, body = _named(fields, "subject"), _body(fields)
    await client.publish(subject, body, headers=headers_of(fields))
    await client.flush()
    return {"status": "success", "subject": subject, "bytes": len(body)}


OPERATIONS: dict[str, Operation] = {
    "kv_put": _kv_put,
    "kv_get": _kv_get,
    "kv_delete": _kv_delete,
    "kv_keys": _kv_keys,
    "kv_purge": _kv_purge,
    "object_put": _object_put,
    "object_get": _object_get,
    "object_delete": _object_delete,
    "object_list": _object_list,
    "object_info": _object_info,
    "js_publish": _js_publish,
    "js_consume": _js_consume,
    "js_get_msg": _js_get_msg,
    "js_stream_info": _js_stream_info,
    "publish": _publish,
}


def _named(fields: Fields, name: str) -> str:
    given = fields.get(name)
    if given is None or given == "" or isinstance(given, dict | list):
        raise Invalid(f"{name}: expected a text, found {'nothing' if given in (None, '') else type(given).__name__}")
    return str(given)


def _object_name(fields: Fields) -> str:
    return _named(fields, next((name for name in ("object", "object_name", "key") if fields.get(name)), "object"))


def _body(fields: Fields) -> bytes:
    """Return what is to be sent: a text as it is, anything else as JSON."""
    value = next((fields[name] for name in ("value", "payload", "data", "message") if name in fields), None)
    return value.encode() if isinstance(value, str) else json_text(value).encode()


def _text(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
