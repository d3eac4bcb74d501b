"""The subjects of the bus. A message on any of them is a doorbell: it says look, never what."""

COMMANDS = "noetl.commands"
SHARDS = "noetl.shards"
PROJECTED = "noetl.projected"
META_WAKE = "noetl.meta.wake"  # rung when there may be a shard to assign
LEASES = "noetl.leases"
# What NATS reads as structure; a pool's name may hold any of them.
_RESERVED = str.maketrans({"*": "_", ">": "_", ".": "_", " ": "_", "\t": "_", "\r": "_", "\n": "_"})


def commands_bell(pool: str) -> str:
    """Return the subject rung when a pool has new commands."""
    return f"{COMMANDS}.{pool.translate(_RESERVED) or '_'}"


def shard_bell(shard_id: int) -> str:
    """Return the subject rung when a shard has new inputs that its owner did not see arrive."""
    return f"{SHARDS}.{shard_id}"


def projected_bell(shard_id: int) -> str:
    """Return the subject rung when a shard's read models moved."""
    return f"{PROJECTED}.{shard_id}"


def leases_bell(role: str) -> str:
    """Return the subject rung when a role's shards were given to someone."""
    return f"{LEASES}.{role}"


def last_token(subject: str) -> str:
    """Return what a doorbell is for: the pool (as spelled in the subject) or the shard number."""
    return subject.rpartition(".")[2]
