"""Claim as many commands as there are free slots, and start each."""

import time

from noetl_common import metrics
from noetl_common.core.commands import CommandContext
from noetl_common.log import get_logger
from noetl_common.store.results import ResultStore
from noetl_common.wire import Claimed, ClaimedCommand, Report
from services.worker.api import Api
from services.worker.desk import Desk
from services.worker.perform import Scopes, failure, perform
from services.worker.pipeline import Machine

log = get_logger(__name__)


class Shop:
    """What performing a command takes, beside the command."""

    def __init__(self, machine: Machine, store: ResultStore, *, worker_id: str) -> None:
        self.machine = machine
        self.store = store
        self.scopes = Scopes(machine, worker_id=worker_id)


async def run_commands_once(desk: Desk, api: Api, shop: Shop, *, pool: str, wait_s: float) -> int:
    """Claim once and start what came; return how many. 0 when nothing waits or every slot is taken.

    Errors: those of the API; and a bug that ended a command, so that it ends this process.
    """
    if desk.bug is not None:
        raise desk.bug
    desk.measure()
    if desk.free_slots() == 0:
        return 0
    began = time.monotonic()
    claimed = await (_found_again(desk, api) if desk.claim_in_doubt else _claimed(desk, api, pool=pool, wait_s=wait_s))
    if not claimed.commands:
        return 0
    metrics.observe("noetl_worker_claim_seconds", time.monotonic() - began)
    desk.lease_s = claimed.lease_s
    desk.leases.add(claimed.commands)
    for row in claimed.results:
        shop.machine.payloads.keep(row)
    for command in claimed.commands:
        desk.start(command, _performed(command, claimed.contexts.get(command.context_id), shop))
    return len(claimed.commands)


async def _claimed(desk: Desk, api: Api, *, pool: str, wait_s: float) -> Claimed:
    desk.claim_in_doubt = True
    claimed = await api.claim(pool, count=desk.appetite(), wait_s=wait_s)
    desk.claim_in_doubt = False
    return claimed


async def _found_again(desk: Desk, api: Api) -> Claimed:
    """Return what a claim without an answer brought after all: otherwise it would wait for its lease to run out."""
    known = desk.leases.tokens()  # before asking: what is reported meanwhile must not be taken for new
    claimed = await api.held()
    desk.claim_in_doubt = False
    claimed.commands = [command for command in claimed.commands if command.claim_token not in known]
    if claimed.commands:
        log.info("claims.found_again", commands=len(claimed.commands))
    return claimed


async def _performed(command: ClaimedCommand, context: CommandContext | None, shop: Shop) -> Report:
    if context is None:
        message = f"the claim came without its context {command.context_id}"
        return failure(command, {"code": "CONTEXT_MISSING", "kind": "protocol", "message": message, "retryable": True})
    return await perform(command, context, scopes=shop.scopes, machine=shop.machine, store=shop.store)
