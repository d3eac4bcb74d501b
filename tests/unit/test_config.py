"""Settings from the environment."""

import io
import json
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from noetl_common import log as logs
from noetl_common.config import Common, check_unknown, env, known_names, load, redacted, render_env_example
from noetl_common.errors import ConfigError


class Example(msgspec.Struct, frozen=True, kw_only=True):
    dsn: Annotated[str, env("DATABASE_URL", doc="Where the log is.", secret=True)]
    lease_s: Annotated[float, env("NOETL_SHARD_LEASE_SEC", unit="s", doc="How long a lease lasts.")] = 4.0
    shards: Annotated[int, env("NOETL_SHARD_COUNT", doc="How many shards."), msgspec.Meta(ge=1, le=256)] = 16
    strict: Annotated[bool, env("NOETL_STRICT_CONFIG", doc="Refuse unknown variables.")] = False
    transport: Annotated[Literal["auto", "http"], env("NOETL_EVENT_TRANSPORT", doc="How events travel.")] = "auto"
    pools: Annotated[tuple[str, ...], env("NOETL_POOLS", doc="Pools served.")] = ("default",)


MINIMAL = {"DATABASE_URL": "postgresql://u:p@h/d"}


def test_what_is_not_set_or_empty_has_its_default() -> None:
    config = load(Example, {**MINIMAL, "NOETL_SHARD_COUNT": "", "NOETL_POOLS": "  "})
    assert config == Example(dsn="postgresql://u:p@h/d")


def test_each_kind_of_value_is_read() -> None:
    given = {
        "NOETL_SHARD_LEASE_SEC": "2.5",
        "NOETL_SHARD_COUNT": "64",
        "NOETL_STRICT_CONFIG": "true",
        "NOETL_EVENT_TRANSPORT": "http",
        "NOETL_POOLS": "default, gpu,",
    }
    config = load(Example, {**MINIMAL, **given})
    assert (config.lease_s, config.shards, config.strict, config.transport) == (2.5, 64, True, "http")
    assert config.pools == ("default", "gpu")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("NOETL_SHARD_LEASE_SEC", "abc", "NOETL_SHARD_LEASE_SEC: expected a number of seconds, found 'abc'"),
        ("NOETL_SHARD_LEASE_SEC", "inf", "expected a number of seconds, found 'inf'"),
        ("NOETL_SHARD_COUNT", "4.5", "NOETL_SHARD_COUNT: expected a whole number from 1 to 256, found '4.5'"),
        ("NOETL_SHARD_COUNT", "0", "expected a whole number from 1 to 256, found '0'"),
        ("NOETL_STRICT_CONFIG", "maybe", "expected true or false, found 'maybe'"),
        ("NOETL_EVENT_TRANSPORT", "tcp", "expected one of auto, http, found 'tcp'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected_and_found(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Example, {**MINIMAL, name: text})
    assert message in str(caught.value)


def test_a_field_without_default_is_required() -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL or DATABASE_URL_FILE: expected a text, found nothing"):
        load(Example, {})


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("postgresql://from/file\n")
    assert load(Example, {"DATABASE_URL_FILE": str(path)}).dsn == "postgresql://from/file"


def test_a_secret_given_twice_or_in_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found both"):
        load(Example, {**MINIMAL, "DATABASE_URL_FILE": "/x"})
    with pytest.raises(ConfigError, match="expected a readable text file"):
        load(Example, {"DATABASE_URL_FILE": str(tmp_path / "none")})


def test_the_value_of_a_wrong_secret_is_never_shown() -> None:
    class Secretive(msgspec.Struct, frozen=True, kw_only=True):
        pin: Annotated[int, env("NOETL_PIN", doc="A pin.", secret=True)] = 0

    with pytest.raises(ConfigError) as caught:
        load(Secretive, {"NOETL_PIN": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_settings_are_shown_without_their_secrets() -> None:
    shown = redacted(load(Example, MINIMAL))
    assert shown["DATABASE_URL"] == "***"
    assert shown["NOETL_SHARD_COUNT"] == 16


def test_the_example_file_has_every_variable_once_and_no_secret() -> None:
    text = render_env_example(Example, Common)
    lines = text.splitlines()
    assert lines.count("DATABASE_URL=") == 1
    assert "NOETL_SHARD_LEASE_SEC=4.0" in lines
    assert "# How long a lease lasts. Unit: seconds." in lines
    assert "# How events travel. One of: auto, http." in lines
    assert "NOETL_POOLS=default" in lines
    assert "NOETL_STRICT_CONFIG=false" in lines


def test_the_example_file_can_be_read_back() -> None:
    lines = [line for line in render_env_example(Common).splitlines() if line and not line.startswith("#")]
    environ = dict(line.split("=", 1) for line in lines)
    assert load(Common, {**environ, **MINIMAL}) == load(Common, MINIMAL)


def test_an_unknown_variable_is_warned_about_with_its_near_matches() -> None:
    stream = io.StringIO()
    logs.configure(role="test", stream=stream)
    try:
        found = check_unknown(known_names(Example), {"NOETL_SHARD_COUNTS": "4", "PATH": "x", "NOETL_POOLS": "a"})
    finally:
        logs.unconfigure()
    assert found == ["NOETL_SHARD_COUNTS"]
    line = json.loads(stream.getvalue())
    assert (line["event"], line["name"]) == ("config.unknown_variable", "NOETL_SHARD_COUNTS")
    assert "NOETL_SHARD_COUNT" in line["near"]


def test_an_unknown_variable_is_refused_when_that_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"NOETL_SHARD_COUNTS \(near: NOETL_SHARD_COUNT"):
        check_unknown(known_names(Example), {"NOETL_SHARD_COUNTS": "4", "NOETL_STRICT_CONFIG": "true"})


def test_the_file_form_of_a_secret_is_known() -> None:
    assert {"DATABASE_URL", "DATABASE_URL_FILE", "NOETL_POOLS"} <= known_names(Example)
    assert "NOETL_POOLS_FILE" not in known_names(Example)


def test_every_role_shares_the_common_settings() -> None:
    config = load(Common, {**MINIMAL, "LOG_LEVEL": "debug", "NATS_URL": "nats://n:4222", "NOETL_PORT": "8082"})
    assert (config.log_level, config.nats_url, config.port, config.host) == (
        "debug",
        "nats://n:4222",
        8082,
        "127.0.0.1",
    )
