"""Messages of streams as data: a bounded batch of a consumer, and one by its number."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from noetl_common.errors import Invalid

BATCH_MESSAGES_MAX = 1000
WAIT_MS_MAX = 5000
WAIT_MS_DEFAULT = 1000
FORGOTTEN_AFTER_S = 30.0  # a consumer without a name
ACK = {"true": True, "auto": True, "on_success": True, "yes": True, "false": False, "none": False, "no": False}

Fields = Mapping[str, Any]


async def consume(client: Client, stream: str, fields: Fields) -> dict[str, Any]:
    """Return {status, stream, messages, count, acked} of up to `batch` messages that come within `timeout_ms`.

    A named consumer is made when it is missing and goes on where it was; without a name reading starts at the front.
    """
    batch = _bounded(fields, ("batch", "batch_size", "max_messages"), default=1, most=BATCH_MESSAGES_MAX)
    wait_ms = _bounded(fields, ("timeout_ms", "max_wait_ms"), default=WAIT_MS_DEFAULT, most=WAIT_MS_MAX)
    acks = _acks(fields)
    context = client.jetstream()
    consumer = await _consumer(context, stream, fields)
    subscription = await context.pull_subscribe_bind(consumer, stream=stream)
    try:
        messages = await subscription.fetch(batch, timeout=wait_ms / 1000)
    except (TimeoutError, nats.errors.TimeoutError):
        messages = []
    finally:
        await subscription.unsubscribe()
    shown = [_shown(message) for message in messages]
    for message in messages if acks else []:
        await message.ack()
    if messages and acks:
        await client.flush()
    count = len(shown)
    return {
        "status": "success",
        "stream": stream,
        "consumer": consumer,
        "messages": shown,
        "count": count,
        "acked": count if acks else 0,
    }


async def get_message(client: Client, stream: str, fields: Fields) -> dict[str, Any]:
    """Return {status, stream, subject, seq, data, headers} of message `seq`, or the last one of `subject`."""
    context = client.jetstream()
    number, subject = fields.get("seq", fields.get("sequence")), fields.get("subject")
    if number is None and not subject:
        raise Invalid("expected `seq`, the number of a message, or `subject`, whose last one is wanted")
    try:
        if number is not None:
            found = await context.get_msg(stream, _whole(number, "seq"))
        else:
            found = await context.get_last_msg(stream, str(subject))
    except nats.js.errors.NotFoundError:
        return {"status": "not_found", "stream": stream, "seq": number, "subject": subject, "data": None}
    data, encoding = content_of(found.data or b"")
    place = {"stream": stream, "subject": found.subject, "seq": found.seq, "headers": dict(found.headers or {})}
    return {"status": "success", **place, "data": data, **({"encoding": encoding} if encoding else {})}


def content_of(body: bytes) -> tuple[Any, str]:
    """Return bytes as JSON if they are, else as text, else base64 and the word for it."""
    try:
        return msgspec.json.decode(body), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return body.decode(), ""
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def headers_of(fields: Fields) -> dict[str, str] | None:
    """Return the message headers of a task's fields."""
    given = fields.get("headers")
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise Invalid(f"headers: expected a mapping, found {type(given).__name__}")
    return {str(name): str(value) for name, value in given.items() if value is not None}


async def _consumer(context: JetStreamContext, stream: str, fields: Fields) -> str:
    name = str(fields.get("consumer") or fields.get("durable") or "")
    if name:
        try:
            await context.consumer_info(stream, name)
        except nats.js.errors.NotFoundError:
            pass
        else:
            return name
    subject = fields.get("subject") or fields.get("filter_subject")
    wanted = ConsumerConfig(
        durable_name=name or None,
        ack_policy=AckPolicy.EXPLICIT,
        filter_subject=str(subject) if subject else None,
        inactive_threshold=None if name else FORGOTTEN_AFTER_S,
    )
    return str((await context.add_consumer(stream, wanted)).name)


def _shown(message: Msg) -> dict[str, Any]:
    data, encoding = content_of(message.data)
    seq = message.metadata.sequence.stream
    shown = {"id": str(seq), "seq": seq, "subject": message.subject, "data": data}
    return {**shown, "headers": dict(message.headers or {}), **({"encoding": encoding} if encoding else {})}


def _acks(fields: Fields) -> bool:
    given = str(fields.get("ack", True)).lower()
    if given not in ACK:
        raise Invalid(f"ack: expected one of {', '.join(ACK)}, found {given!r}")
    return ACK[given]


def _bounded(fields: Fields, names: tuple[str, ...], *, default: int, most: int) -> int:
    name = next((name for name in names if fields.get(name) not in (None, "")), None)
    if name is None:
        return default
    number = _whole(fields[name], name)
    if number < 1:
        raise Invalid(f"{name}: expected 1 to {most}, found {number}")
    return min(number, most)


def _whole(given: Any, name: str) -> int:
    try:
        return int(given)
    except (TypeError, ValueError):
        raise Invalid(f"{name}: expected a whole number, found {str(given)[:50]!r}") from None
