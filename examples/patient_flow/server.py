"""A small paginated HTTP API with made-up patients: the same ones each time, computed from their numbers."""

import asyncio
import threading
from collections.abc import Callable
from datetime import date, timedelta
from types import TracebackType
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from noetl_common.errors import Unavailable
from noetl_common.process import Service, serve

PATIENTS = 1000
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 500
START_TIMEOUT_S = 10.0

NAMES = ("Ada", "Ben", "Chen", "Dana", "Eli", "Fay", "Gil", "Hana", "Ivo", "June")
SURNAMES = ("Adler", "Brook", "O'Connor", "Dahl", "Evans", "Frost", "García")
CODES = ("E11", "I10", "J45", "M54", "F41", "N18")
DRUGS = ("metformin", "lisinopril", "salbutamol", "ibuprofen", "sertraline")

Record = dict[str, Any]


def demographics(n: int) -> Record:
    """Return who patient `n` is."""
    name = f"{NAMES[n % len(NAMES)]} {SURNAMES[n % len(SURNAMES)]}"
    return {"patient_id": n, "name": name, "birth_year": 1930 + n * 7 % 80, "facility": f"clinic-{n % 10}"}


def encounters(n: int) -> Record:
    """Return how often patient `n` came."""
    return {"patient_id": n, "visits": 1 + n * 3 % 17, "last_visit": str(date(2025, 1, 1) + timedelta(days=n % 365))}


def conditions(n: int) -> Record:
    """Return what patient `n` has."""
    return {"patient_id": n, "code": CODES[n % len(CODES)], "severity": 1 + n * 5 % 4}


def medications(n: int) -> Record:
    """Return what patient `n` takes."""
    return {"patient_id": n, "drug": DRUGS[n % len(DRUGS)], "daily_doses": 1 + n % 3}


def vitals(n: int) -> Record:
    """Return what was measured of patient `n`."""
    return {
        "patient_id": n,
        "systolic": 100 + n * 11 % 60,
        "diastolic": 60 + n * 13 % 35,
        "weight_kg": 45 + n * 17 % 700 / 10,
    }


# {kind: (record of patient n, its fields that are summed to verify)}
KINDS: dict[str, tuple[Callable[[int], Record], tuple[str, ...]]] = {
    "demographics": (demographics, ("birth_year",)),
    "encounters": (encounters, ("visits",)),
    "conditions": (conditions, ("severity",)),
    "medications": (medications, ("daily_doses",)),
    "vitals": (vitals, ("systolic", "diastolic")),
}


async def list_records(request: Request) -> JSONResponse:
    """GET /api/{kind}?page=&page_size= -> {items, page, has_more}; pages count from 1."""
    kind = request.path_params["kind"]
    if kind not in KINDS:
        return JSONResponse({"error": f"expected one of {', '.join(KINDS)}, found {kind!r}"}, status_code=404)
    try:
        page = int(request.query_params.get("page", 1))
        page_size = int(request.query_params.get("page_size", PAGE_SIZE_DEFAULT))
    except ValueError:
        return JSONResponse({"error": "page and page_size: expected numbers"}, status_code=422)
    if page < 1 or not 1 <= page_size <= PAGE_SIZE_MAX:
        return JSONResponse({"error": f"expected page >= 1 and page_size 1..{PAGE_SIZE_MAX}"}, status_code=422)
    record, _summed = KINDS[kind]
    first, last = (page - 1) * page_size + 1, min(page * page_size, PATIENTS)
    items = [record(n) for n in range(first, last + 1)]
    return JSONResponse({"items": items, "page": page, "has_more": last < PATIENTS})


async def totals(request: Request) -> JSONResponse:
    """GET /api/totals?patients= -> what the first `patients` patients add up to, a row a kind."""
    patients = min(int(request.query_params.get("patients", PATIENTS)), PATIENTS)
    rows = [
        {
            "kind": kind,
            "records": patients,
            "total": sum(record(n)[field] for n in range(1, patients + 1) for field in summed),
        }
        for kind, (record, summed) in KINDS.items()
    ]
    return JSONResponse({"totals": rows})


class PatientApi:
    """The API on a free loopback port, served by a thread for as long as the `with` block lasts."""

    def __init__(self) -> None:
        self.url = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="patient-api")

    def __enter__(self) -> "PatientApi":
        """Return once connections are accepted."""
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise Unavailable(f"the patient API did not start within {START_TIMEOUT_S:.0f} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        routes = [Route("/api/totals", totals), Route("/api/{kind}", list_records)]
        service = Service(name="patient-api", asgi=Starlette(routes=routes), host="127.0.0.1", port=0)
        await serve(service, self._stop, started=self._started)

    def _started(self, host: str, port: int) -> None:
        self.url = f"http://{host}:{port}"
        self._ready.set()
