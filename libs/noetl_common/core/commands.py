"""What next: the command that a worker claims, and the context that all items of a loop share."""

from typing import Any

import msgspec

from noetl_common.core.playbook import Output, Task
from noetl_common.core.values import Ref, Value

ITEM_INLINE_BYTES_MAX = 1024
TURN_S = 0.005  # how much later a command's turn is for each other one of its run that is under way
CHUNK = "chunk"  # the iterator of a step that takes the chunks of another


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What differs between the items of a loop: the item, and the results of the tasks before this segment.

    Shapes: the item is `v`, or the element `index` of the list that `ref` names, or with `whole` all that `ref`
    names; `prior` is a {label: result} payload (shape pipeline) of the tasks of earlier segments.
    Units: `total` is the size of the item's frame in a cursor loop, where `_index` counts within it; 0 elsewhere.
    """

    v: Any = None
    ref: Ref | None = None
    index: int = -1
    whole: bool = False
    total: int = 0
    prior: Ref | None = None


class CommandContext(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that a worker needs to run a command beside its item. Values by reference; never a secret."""

    execution_id: int
    catalog_id: int
    path: str
    version: int
    step: str
    tasks: tuple[Task, ...]
    is_pipeline: bool = False
    output: Output | None = None  # how the step's result is kept
    more: bool = False  # another segment of the step follows this one
    workload: Value = Value({})
    ctx: dict[str, Value] = {}
    results: dict[str, Ref] = {}
    iterator: str = ""
    total: int = 0  # items of the loop
    frame: dict[str, Any] = {}  # of a claim: names its templates see beside all others, like __frame_max_rows
    keychain: tuple[dict[str, Any], ...] = ()
    parent_execution_id: int = 0
    last: Ref | None = None  # of the step that ended before, for templates that read `result`


class Command(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One piece of work, once. `command_id` is a hash of its cause, so a retry of routing mints it again.

    `turn_s`: how long after a run's only command its turn comes, when both are issued together.
    """

    execution_id: int
    command_id: int
    step: str
    context_id: int
    issued_event_id: int
    pool: str = "default"
    priority: int = 0
    loop_epoch: int = 0
    iter_index: int = -1
    item: Item | None = None
    delay_s: float = 0.0
    turn_s: float = 0.0
