"""What a container task asks for: its fields checked, and as the parts of a Kubernetes Job."""

import re
from typing import Any, Literal, cast, get_args

import msgspec

from noetl_common.errors import Invalid
from services.worker.tools import Call

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
BACKOFF_LIMIT_MAX = 100
AS_WRITTEN = frozenset(("volumeAttributes", "matchLabels"))  # mappings whose keys are the author's own

RestartPolicy = Literal["Never", "OnFailure"]


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """One container to run. `environ` holds the plain variables, `env` all of them as a Job has them."""

    image: str
    command: list[str]
    args: list[str]
    env: list[dict[str, Any]]
    environ: dict[str, str]
    resources: dict[str, dict[str, str]]
    namespace: str
    service_account: str
    backoff_limit: int
    restart_policy: RestartPolicy
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    volume_mounts: list[dict[str, Any]]


class Sealed(msgspec.Struct, kw_only=True, frozen=True):
    """What a container runs, as a Job may say it: `secrets` {key: value} stand in a Secret that the rest names."""

    env: list[dict[str, Any]]
    command: list[str]
    args: list[str]
    secrets: dict[str, str]


def sealed_of(call: Call, plan: Plan, secret_name: str) -> Sealed:
    """Return what `plan` runs with every text that holds a secret of the command moved to the Secret `secret_name`.

    A word of the command line becomes the variable `$(NOETL_SECRET_<n>)`, which Kubernetes puts in where it starts it.
    """
    secrets: dict[str, str] = {}
    added: list[dict[str, Any]] = []

    def reference(key: str, value: str) -> dict[str, Any]:
        secrets[key] = value
        return {"name": key, "valueFrom": {"secretKeyRef": {"name": secret_name, "key": key}}}

    def word(text: str) -> str:
        if not call.conceals(text):
            return text
        added.append(reference(f"NOETL_SECRET_{len(added)}", text))
        return f"$({added[-1]['name']})"

    def variable(each: dict[str, Any]) -> dict[str, Any]:
        value = each.get("value")
        return reference(each["name"], value) if value is not None and call.conceals(value) else each

    command, args = [word(text) for text in plan.command], [word(text) for text in plan.args]
    return Sealed(env=[*map(variable, plan.env), *added], command=command, args=args, secrets=secrets)


def plan_of(call: Call) -> Plan:
    """Return what the fields of `call` ask for.

    Errors: Invalid names the field, what was expected and what was found.
    """
    config = call.config
    image = config.get("image")
    if not isinstance(image, str) or not image.strip():
        raise Invalid(f"image: expected the name of an image, found {image!r}")
    env = [{"name": "NOETL_IDEMPOTENCY_KEY", "value": call.idempotency_key}, *_env(config.get("env"))]
    volumes, mounts = _volumes(config)
    restart_policy = config.get("restart_policy") or "Never"
    if restart_policy not in get_args(RestartPolicy):
        raise Invalid(f"restart_policy: expected Never or OnFailure, found {restart_policy!r}")
    return Plan(
        image=image.strip(),
        command=_argv(config.get("command"), "command"),
        args=_argv(config.get("args"), "args"),
        env=env,
        environ={each["name"]: each["value"] for each in env if "value" in each},
        resources=_resources(config.get("resources")),
        namespace=_name(config.get("namespace"), "namespace"),
        service_account=_name(config.get("service_account") or config.get("service_account_name"), "service_account"),
        backoff_limit=_backoff_limit(config.get("backoff_limit", 0)),
        restart_policy=cast(RestartPolicy, restart_policy),
        node_selector={name: _scalar(v, f"node_selector.{name}") for name, v in _mapping(config, "node_selector")},
        tolerations=[_camel(each) for each in _mappings(config, "tolerations")],
        volumes=volumes,
        volume_mounts=mounts,
    )


def _argv(given: Any, field: str) -> list[str]:
    if given in (None, "", []):
        return []
    if not isinstance(given, list):
        raise Invalid(f"{field}: expected a list of texts, found {type(given).__name__}")
    return [_scalar(each, f"{field}[{index}]") for index, each in enumerate(given)]


def _env(given: Any) -> list[dict[str, Any]]:
    """Return variables as a Job has them, from a mapping or from a list of {name, value or value_from}."""
    if given in (None, ""):
        return []
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items() if value is not None]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Invalid(f"env: expected a mapping, or a list of {{name, value}}, found {type(given).__name__}")
    found = []
    for index, each in enumerate(given):
        name = each.get("name")
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            raise Invalid(f"env[{index}].name: expected the name of a variable, found {name!r}")
        source = each.get("value_from") or each.get("valueFrom")
        if isinstance(source, dict) and "secret_name" in source:
            reference = {"name": source["secret_name"], "key": source.get("secret_key")}
            found.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
        elif isinstance(source, dict):
            found.append({"name": name, "valueFrom": _camel(source)})
        else:
            value = each.get("value")
            found.append({"name": name, "value": "" if value is None else _scalar(value, f"env.{name}")})
    return found


def _volumes(config: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = []
    mounts = [_camel(each) for each in _mappings(config, "volume_mounts")]
    for index, given in enumerate(_mappings(config, "volumes")):
        volume = _camel(given)
        name = _name(volume.get("name"), f"volumes[{index}].name")
        if not name:
            raise Invalid(f"volumes[{index}].name: expected a name, found nothing")
        if "hostPath" in volume:
            raise Invalid(f"volumes[{index}]: expected a volume of the cluster, found hostPath, the node's own files")
        path = volume.pop("mountPath", None)
        if path:
            mount = {"name": name, "mountPath": path}
            mounts.append({**mount, **{key: volume.pop(key) for key in ("readOnly", "subPath") if key in volume}})
        volumes.append(volume)
    return volumes, mounts


def _resources(given: Any) -> dict[str, dict[str, str]]:
    if given in (None, ""):
        return {}
    if not isinstance(given, dict) or (unknown := sorted(set(given) - {"requests", "limits"})):
        found = type(given).__name__ if not isinstance(given, dict) else repr(unknown[0])
        raise Invalid(f"resources: expected {{requests, limits}}, found {found}")
    return {
        side: {name: _scalar(value, f"resources.{side}.{name}") for name, value in _mapping(given, side)}
        for side in ("requests", "limits")
        if given.get(side)
    }


def _backoff_limit(given: Any) -> int:
    limit = int(given) if isinstance(given, str) and given.isdecimal() else given
    if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= BACKOFF_LIMIT_MAX:
        raise Invalid(f"backoff_limit: expected 0 to {BACKOFF_LIMIT_MAX}, found {given!r}")
    return limit


def _name(given: Any, field: str) -> str:
    if given in (None, ""):
        return ""
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise Invalid(f"{field}: expected small letters, digits and hyphens, found {given!r}")
    return given


def _mapping(config: dict[str, Any], field: str) -> list[tuple[str, Any]]:
    given = config.get(field)
    if given in (None, ""):
        return []
    if not isinstance(given, dict):
        raise Invalid(f"{field}: expected a mapping, found {type(given).__name__}")
    return list(given.items())


def _mappings(config: dict[str, Any], field: str) -> list[dict[str, Any]]:
    given = config.get(field)
    if given in (None, ""):
        return []
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Invalid(f"{field}: expected a list of mappings, found {type(given).__name__}")
    return given


def _scalar(value: Any, where: str) -> str:
    # A template may have rendered to a number or a truth value; Kubernetes takes texts.
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    raise Invalid(f"{where}: expected text, found {type(value).__name__}")


def _camel(value: Any) -> Any:
    """Return Kubernetes' own spelling of the keys: `config_map` is `configMap`."""
    if isinstance(value, list):
        return [_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {re.sub(r"_([a-z])", lambda match: match[1].upper(), str(name)): each for name, each in value.items()}
    return {name: each if name in AS_WRITTEN else _camel(each) for name, each in renamed.items()}
