"""Settings of the result tiers, the same for every role that stores or reads payloads, and the store they make."""

from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from noetl_common.bus_values import NatsValues
from noetl_common.config import Common, env
from noetl_common.core.values import TierRule
from noetl_common.errors import ConfigError
from noetl_common.log import get_logger
from noetl_common.store import Tier
from noetl_common.store.disk import DiskTier
from noetl_common.store.kv import Copies, KvTier
from noetl_common.store.objects import ObjectTier
from noetl_common.store.results import ResultStore

Durable = Literal["disk", "pvc", "minio", "s3", "gcs"]
Named = Literal[Durable, "object"]
COPIES_BUCKET = "noetl_results"
_DURABLE: tuple[Durable, ...] = get_args(Durable)

log = get_logger(__name__)


class Stores(Common, frozen=True, kw_only=True):
    """What a role is told about the tiers. Roles that share results share these."""

    default_store_tier: Annotated[
        Named, env("NOETL_DEFAULT_STORE_TIER", doc="Where results over 8 KiB go; object: the old name of disk.")
    ] = "disk"
    store_fallback_tiers: Annotated[
        tuple[str, ...],
        env("NOETL_STORE_FALLBACK_TIERS", doc="Tiers that take what the default one does not, in order, with commas."),
    ] = ()
    store_dir: Annotated[
        str, env("NOETL_STORE_DIR", doc="Folder of the disk tier; shared by every role that reads results.")
    ] = ".noetl/results"
    pvc_mount_path: Annotated[
        str, env("NOETL_PVC_MOUNT_PATH", doc="Where the shared volume of the pvc tier is mounted; empty: none is.")
    ] = ""
    pvc_over_bytes: Annotated[
        int,
        env("NOETL_PVC_TIER_THRESHOLD_BYTES", unit="bytes", doc="Larger results go to the volume when one is mounted."),
        Meta(ge=0),
    ] = 10 * 1024 * 1024
    kv_copies: Annotated[
        bool,
        env("NOETL_KV_COPIES", doc="Copy results of 64 KiB to 1 MB to NATS, where NATS_URL is set; tier name kv."),
    ] = True
    minio_endpoint: Annotated[str, env("NOETL_MINIO_ENDPOINT", doc="MinIO, as http://host:9000.")] = ""
    minio_access_key: Annotated[str, env("NOETL_MINIO_ACCESS_KEY", doc="Who asks MinIO.", secret=True)] = ""
    minio_secret_key: Annotated[str, env("NOETL_MINIO_SECRET_KEY", doc="The password there.", secret=True)] = ""
    minio_bucket: Annotated[str, env("NOETL_MINIO_BUCKET", doc="The bucket; made when it is not there.")] = (
        "noetl-results"
    )
    minio_region: Annotated[str, env("NOETL_MINIO_REGION", doc="The region, for the signature.")] = "us-east-1"
    s3_endpoint: Annotated[str, env("NOETL_S3_ENDPOINT", doc="S3, as https://host; empty: AWS.")] = ""
    s3_access_key: Annotated[str, env("NOETL_S3_ACCESS_KEY", doc="Who asks S3.", secret=True)] = ""
    s3_secret_key: Annotated[str, env("NOETL_S3_SECRET_KEY", doc="The password there.", secret=True)] = ""
    s3_bucket: Annotated[str, env("NOETL_S3_BUCKET", doc="The bucket; made when it is not there.")] = ""
    s3_region: Annotated[str, env("NOETL_S3_REGION", doc="The region; empty: the server is asked.")] = ""
    gcs_bucket: Annotated[
        str, env("NOETL_GCS_BUCKET", doc="The bucket at Google; made when it is not there. Needs noetl[gcs].")
    ] = ""
    gcs_project: Annotated[
        str, env("NOETL_GCS_PROJECT", doc="The project of a bucket that is made; empty: that of the credentials.")
    ] = ""


def open_store(config: Stores, *, name: str = "noetl") -> ResultStore:
    """Return the store that a role is configured for; `start` it before use.

    Errors: ConfigError names the variable, what was expected and what was found; DependencyMissing without an extra.
    """
    default = _present("NOETL_DEFAULT_STORE_TIER", config.default_store_tier)
    names = [default, *(_present("NOETL_STORE_FALLBACK_TIERS", tier) for tier in config.store_fallback_tiers)]
    if config.pvc_mount_path:
        names.append("pvc")
    copies = None
    if config.kv_copies and config.nats_url:
        copies = Copies(KvTier(NatsValues(config.nats_url, bucket=COPIES_BUCKET, name=name)))
    rule = TierRule(
        default=default,
        copies=copies is not None,
        pvc_over_bytes=config.pvc_over_bytes if config.pvc_mount_path else None,
    )
    return ResultStore([_tier(tier, config) for tier in dict.fromkeys(names)], rule, copies=copies)


def _present(variable: str, name: str) -> Durable:
    """Return the tier of a name in a setting."""
    if name == "object":
        log.warning("store.tier_renamed", variable=variable, found="object", used="disk")
        return "disk"
    for tier in _DURABLE:
        if name == tier:
            return tier
    raise ConfigError(f"{variable}: expected tiers out of {', '.join(_DURABLE)}, found {name!r}")


def _tier(name: Durable, config: Stores) -> Tier:
    if name == "disk":
        return DiskTier(Path(config.store_dir))
    if name == "pvc":
        return DiskTier(Path(_needed("NOETL_PVC_MOUNT_PATH", config.pvc_mount_path, name)), "pvc")
    if name == "gcs":
        # Here, because the library is an extra.
        from noetl_common.store.gcs import GcsObjects

        bucket = _needed("NOETL_GCS_BUCKET", config.gcs_bucket, name)
        return ObjectTier(GcsObjects(bucket, project=config.gcs_project), name)
    # Here too: most stacks store in a folder, and need not wait for a client that they do not use.
    from noetl_common.store.s3 import S3Login, S3Objects

    if name == "minio":
        login = S3Login(
            endpoint=_needed("NOETL_MINIO_ENDPOINT", config.minio_endpoint, name),
            access_key=_needed("NOETL_MINIO_ACCESS_KEY", config.minio_access_key, name),
            secret_key=_needed("NOETL_MINIO_SECRET_KEY", config.minio_secret_key, name),
            region=config.minio_region,
        )
        return ObjectTier(S3Objects(login, _needed("NOETL_MINIO_BUCKET", config.minio_bucket, name)), name)
    login = S3Login(
        endpoint=config.s3_endpoint,
        access_key=_needed("NOETL_S3_ACCESS_KEY", config.s3_access_key, name),
        secret_key=_needed("NOETL_S3_SECRET_KEY", config.s3_secret_key, name),
        region=config.s3_region,
    )
    return ObjectTier(S3Objects(login, _needed("NOETL_S3_BUCKET", config.s3_bucket, name)), name)


def _needed(variable: str, value: str, tier: str) -> str:
    if not value:
        raise ConfigError(f"{variable}: expected a value, because the {tier} tier is configured; found nothing")
    return value
