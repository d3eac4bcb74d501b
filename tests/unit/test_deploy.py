"""What is deployed is what the code has: commands, ports, probes, environment, names."""

import base64
import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import msgspec
import pytest
import yaml

from deploy import compose_env
from noetl_cli.reference import ROLES, config_of
from noetl_common.config import known_names, load
from noetl_common.health import Health
from noetl_common.secrets import load_key
from services.ingest.auth import guard_of

ROOT = Path(__file__).parents[2]
K8S = ROOT / "deploy/k8s"
TREES = {"base": K8S / "base", "dev": K8S / "overlays/dev"}
KUBERNETES_VERSIONS = ("1.30.0", "1.32.0", "1.37.0")
WORKLOADS = {"Deployment", "StatefulSet", "Job"}
NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
SECRETS_OF_THE_OPERATOR = {"noetl"}
OURS = "noetl"
ASKED = re.compile(r"\$\{(\w+):\?[^}]+\}")
# Given to every role alike, whether it reads them or not.
SHARED = {"NOETL_HOST", "NOETL_PORT", "NATS_URL", "LOG_LEVEL"}
# How the library names a request, and how a Role grants it.
CALL = re.compile(r"_(batch|core)\.([a-z]+)_namespaced_(\w+)")
GROUPS = {"batch": "batch", "core": ""}
RESOURCES = {"job": "jobs", "secret": "secrets", "pod": "pods", "pod_log": "pods/log"}
VERBS = {"read": "get"}
STAND_INS = {
    "DATABASE_URL": "postgresql://noetl@postgres/noetl",
    "NOETL_ENCRYPTION_KEY": "+z1/z81s0BlMFfSTweHWrihSY+MO8TUjyrp+FixTBIc=",
    "NOETL_AUTH_TOKENS": '{"a-stand-in-for-a-token": ["worker"]}',
    "NOETL_API_TOKEN": "a-stand-in-for-a-token",
    "ADMIN_TOKEN": "a-stand-in-for-another",
    "POSTGRES_PASSWORD": "a-stand-in",
}


@cache
def rendered(tree: str) -> tuple[dict[str, Any], ...]:
    """Return the manifests as kustomize renders them, or as the files have them where kubectl is absent."""
    if shutil.which("kubectl"):
        done = subprocess.run(
            ["kubectl", "kustomize", str(TREES[tree])], capture_output=True, text=True, timeout=60, check=True
        )
        return tuple(yaml.safe_load_all(done.stdout))
    return tuple(_resources(TREES[tree]))


def _resources(folder: Path) -> Iterator[dict[str, Any]]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    for name in kustomization["resources"]:
        if name.endswith(".yaml"):
            yield from yaml.safe_load_all((folder / name).read_text(encoding="utf-8"))
        else:
            yield from _resources(folder / name)
    for secret in kustomization.get("secretGenerator", ()):
        pairs = dict(literal.split("=", 1) for literal in secret["literals"])
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret["name"]}, "stringData": pairs}


def of_kind(tree: str, *kinds: str) -> list[dict[str, Any]]:
    return [manifest for manifest in rendered(tree) if manifest["kind"] in kinds]


def containers(tree: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each workload with each of its containers."""
    for workload in of_kind(tree, *WORKLOADS):
        for container in workload["spec"]["template"]["spec"]["containers"]:
            yield workload, container


def our_containers(tree: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (role, container) of the containers that run this code."""
    for _workload, container in containers(tree):
        if container["image"].split(":")[0] == OURS:
            yield container["args"][0].removeprefix("services."), container


def environment(tree: str, container: dict[str, Any]) -> dict[str, str]:
    """Return the variables a container gets; those from a Secret that the operator makes have a stand-in."""
    maps = {manifest["metadata"]["name"]: manifest["data"] for manifest in of_kind(tree, "ConfigMap")}
    secrets = secrets_of(tree)
    given: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        given |= maps[source["configMapRef"]["name"]]
    for variable in container.get("env", ()):
        key = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("key", "")
        given[variable["name"]] = secrets.get(key, STAND_INS[variable["name"]]) if key else variable["value"]
    return given


def secrets_of(tree: str) -> dict[str, str]:
    """Return {key: text} of the Secrets in a tree."""
    found: dict[str, str] = {}
    for secret in of_kind(tree, "Secret"):
        found |= {key: base64.b64decode(text).decode() for key, text in secret.get("data", {}).items()}
        found |= secret.get("stringData", {})
    return found


def check_runs(role: str, given: dict[str, str], *, port: int) -> None:
    """Assert that the role exists, knows each variable, reads them, and listens where it is expected."""
    role, _, module = role.partition(".")
    assert role in ROLES
    name = f"services.{role}.{module or '__main__'}"
    assert importlib.util.find_spec(name), f"{name} cannot be run"
    kind = config_of(role)
    unknown = set(given) - known_names(*(config_of(name) for name in ROLES))
    assert not unknown, f"{role}: no config reads {sorted(unknown)}"
    unread = set(given) - SHARED - known_names(kind)
    assert not unread, f"{role} is given what it does not read: {sorted(unread)}"
    config: Any = load(kind, given)
    assert (config.host, config.port) == ("0.0.0.0", port)
    if role == "ingest":
        load_key(config.encryption_key)
        # Refuses an address that others can reach without tokens, and tokens that are malformed.
        guard_of(auth=config.auth, tokens=config.auth_tokens, host=config.host, insecure_bind=config.insecure_bind)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("tree", TREES)
def test_the_manifests_are_valid(tree: str, version: str) -> None:
    for manifest in rendered(tree):
        # A kind this version does not know raises too: a warning would be a failure.
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [("replicaz", 2), ("replicas", "two")],
)
def test_the_validator_refuses_what_is_wrong(field: str, value: object) -> None:
    deployment = of_kind("base", "Deployment")[0]
    wrong = {**deployment, "spec": {**deployment["spec"], field: value}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES_VERSIONS[-1], strict=True)


def test_the_validator_refuses_a_kind_that_is_gone() -> None:
    gone = {"apiVersion": "autoscaling/v2beta1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"}}
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        kubernetes_validate.validate(gone, KUBERNETES_VERSIONS[-1], strict=True)


@pytest.mark.parametrize("tree", TREES)
def test_names_are_dns_labels_and_unique(tree: str) -> None:
    seen: set[tuple[str, str]] = set()
    for manifest in rendered(tree):
        name = manifest["metadata"]["name"]
        assert NAME.fullmatch(name), name
        assert (manifest["kind"], name) not in seen
        seen.add((manifest["kind"], name))


@pytest.mark.parametrize("tree", TREES)
def test_every_role_has_a_deployment_a_service_and_a_disruption_budget(tree: str) -> None:
    for kind in ("Deployment", "Service", "PodDisruptionBudget"):
        names = {manifest["metadata"]["name"] for manifest in of_kind(tree, kind)}
        assert {f"noetl-{role}" for role in ROLES} <= names, kind


@pytest.mark.parametrize("tree", TREES)
def test_containers_run_what_exists_with_settings_it_reads(tree: str) -> None:
    found = list(our_containers(tree))
    assert {role for role, _container in found} == {*ROLES, "meta.migrate"}
    for role, container in found:
        port = container["ports"][0]["containerPort"] if "ports" in container else 8082
        check_runs(role, environment(tree, container), port=port)


def test_the_migration_job_runs_a_module_that_exists() -> None:
    (job,) = of_kind("base", "Job")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["services.meta.migrate"]
    check_runs("meta.migrate", environment("base", container), port=8082)


@pytest.mark.parametrize("tree", TREES)
async def test_probes_ask_for_routes_that_every_role_has(tree: str) -> None:
    health = Health("any", checks={}, inner=None)
    transport = httpx.ASGITransport(app=health)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://role") as client:
        for role, container in our_containers(tree):
            if "ports" not in container:
                continue
            for probe, path in (
                ("startupProbe", "/startupz"),
                ("livenessProbe", "/livez"),
                ("readinessProbe", "/readyz"),
            ):
                asked = container[probe]["httpGet"]
                assert asked["path"] == path, role
                assert asked["port"] in {port["name"] for port in container["ports"]}, role
                assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("tree", TREES)
def test_selectors_match_the_pods_they_are_meant_for(tree: str) -> None:
    pods = [workload["spec"]["template"] for workload in of_kind(tree, *WORKLOADS)]
    for workload in of_kind(tree, "Deployment", "StatefulSet"):
        wanted = workload["spec"]["selector"]["matchLabels"].items()
        assert wanted <= workload["spec"]["template"]["metadata"]["labels"].items()
        assert "app.kubernetes.io/version" not in dict(wanted)
    for service in of_kind(tree, "Service"):
        wanted = service["spec"]["selector"].items()
        chosen = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, f"{service['metadata']['name']} selects {len(chosen)} workloads"
        ports = {port["name"] for container in chosen[0]["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for budget in of_kind(tree, "PodDisruptionBudget"):
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        assert sum(wanted <= pod["metadata"]["labels"].items() for pod in pods) == 1


@pytest.mark.parametrize("tree", TREES)
def test_every_reference_in_a_pod_resolves(tree: str) -> None:
    named = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered(tree)}
    keys = secrets_of(tree)
    for workload, container in containers(tree):
        pod = workload["spec"]["template"]["spec"]
        if "serviceAccountName" in pod:
            assert ("ServiceAccount", pod["serviceAccountName"]) in named
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"] for volume in pod.get("volumes", ())} | claims
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        for volume in pod.get("volumes", ()):
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in named
        for variable in container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                assert reference["name"] in SECRETS_OF_THE_OPERATOR
                assert not keys or reference["key"] in keys


@pytest.mark.parametrize("tree", TREES)
def test_no_pod_has_more_rights_than_it_needs(tree: str) -> None:
    for workload, container in containers(tree):
        pod = workload["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is (workload["metadata"]["name"] == "noetl-worker")
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert (not re.search(r":latest$", container["image"]) and ":" in container["image"]) or container[
            "image"
        ] == OURS
    for _role, container in our_containers(tree):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("tree", TREES)
def test_the_worker_may_ask_the_cluster_what_the_container_tool_asks_and_nothing_else(tree: str) -> None:
    code = (ROOT / "services/worker/tools/container_cluster.py").read_text(encoding="utf-8")
    asked = {(GROUPS[api], RESOURCES[what], VERBS.get(verb, verb)) for api, verb, what in CALL.findall(code)}
    assert len(asked) == 7
    (role,) = of_kind(tree, "Role")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == asked
    assert not of_kind(tree, "ClusterRole", "ClusterRoleBinding")
    (binding,) = of_kind(tree, "RoleBinding")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    (subject,) = binding["subjects"]
    holders = [
        workload["metadata"]["name"]
        for workload in of_kind(tree, *WORKLOADS)
        if workload["spec"]["template"]["spec"].get("serviceAccountName") == subject["name"]
    ]
    assert holders == ["noetl-worker"]


def test_only_roles_with_a_database_are_given_its_address() -> None:
    for place, container in our_containers("base"):
        role = place.partition(".")[0]
        fields = {field.name: field for field in msgspec.structs.fields(config_of(role))}
        assert ("DATABASE_URL" in environment("base", container)) == fields["database_url"].required


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return document


def test_compose_starts_every_role_with_settings_it_reads() -> None:
    services = compose()["services"]
    assert set(services) == {*ROLES, "postgres", "nats", "minio"}
    for role in ROLES:
        service = services[role]
        assert service["command"] == [f"services.{role}"]
        check_runs(role, _interpolated(service["environment"]), port=8082)


def _interpolated(given: dict[str, str]) -> dict[str, str]:
    return {name: ASKED.sub(lambda asked: STAND_INS[asked[1]], value) for name, value in given.items()}


def test_compose_waits_for_health_and_not_for_luck() -> None:
    document = compose()
    for name, service in document["services"].items():
        assert service["healthcheck"]["test"][0] == "CMD", f"{name} has no health check"
        for other, condition in service.get("depends_on", {}).items():
            assert other in document["services"]
            assert condition == {"condition": "service_healthy"}
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in document["volumes"]
    assert "/readyz" in document["services"]["ingest"]["healthcheck"]["test"][-1]


def test_compose_holds_no_secret_and_the_example_names_each_it_asks_for() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    asked = set(ASKED.findall(text))
    assert asked == set(re.findall(r"\$\{(\w+)", text)), "a variable may be unset without a word"
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    for name in asked:
        assert re.search(rf"^{name}=$", example, re.MULTILINE), f".env.example does not name {name}"


def test_the_env_that_is_made_for_compose_gives_all_that_it_asks_for() -> None:
    text = compose_env.filled((ROOT / ".env.example").read_text(encoding="utf-8"))
    given = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    asked = set(ASKED.findall((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert all(len(given[name]) >= 16 for name in asked)
    assert len({given[name] for name in asked}) == len(asked)
    load_key(given["NOETL_ENCRYPTION_KEY"])
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert ".env" in ignored


def test_worker_and_ingest_share_the_results() -> None:
    services = compose()["services"]
    shared = [volume for volume in services["worker"]["volumes"] if volume in services["ingest"]["volumes"]]
    assert shared == ["results:/var/lib/noetl"]
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "mkdir -p /var/lib/noetl && chown 10001:10001 /var/lib/noetl" in dockerfile


def test_compose_is_accepted_by_docker_where_there_is_one() -> None:
    if not shutil.which("docker") or _docker("compose", "version").returncode != 0:
        pytest.skip("docker compose is not installed")
    done = _docker("compose", "--file", str(ROOT / "docker-compose.yml"), "config", "--quiet")
    assert done.returncode == 0, done.stderr


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | dict.fromkeys(
        ("POSTGRES_PASSWORD", "MINIO_ROOT_PASSWORD", "NOETL_ENCRYPTION_KEY", "NOETL_API_TOKEN", "ADMIN_TOKEN"), "x"
    )
    return subprocess.run(["docker", *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_the_image_has_the_extras_it_is_told_and_every_role_by_default() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    default, fullest = re.findall(r"EXTRAS=([\w,]+)$", text, re.MULTILINE)[::-1]
    assert {*ROLES, "cli", "k8s"} <= set(default.split(",")) < set(fullest.split(","))
    # What is left out is for a laptop: servers of its own, and all at once.
    assert set(fullest.split(",")) == extras.keys() - {"embedded", "all"}
    assert '"noetl[${EXTRAS}]"' in text


def test_the_image_runs_as_nobody_in_particular_and_takes_the_role_as_argument() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert "USER 10001:10001" in lines
    assert 'ENTRYPOINT ["python", "-m"]' in lines
    assert 'CMD ["services.ingest"]' in lines
    assert not [line for line in lines if line.startswith("HEALTHCHECK") or ":latest" in line]
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert f"ARG VERSION={version[1]}" in lines
    assert f"newTag: {version[1]}" in (K8S / "base/kustomization.yaml").read_text(encoding="utf-8")
    assert f"image: noetl:{version[1]}" in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
