"""Records of patients for the HTTP API of playbooks under test, made from the number of the patient alone."""

import hashlib
from typing import Any

MOST_PAGES = {"assessments": (2, 4), "conditions": (1, 3), "medications": (2, 3), "vital_signs": (1, 1)}
KINDS = (*MOST_PAGES, "demographics")
MDS_PER_PAGE = (5, 10)


def pages_of(kind: str, patient: int) -> int:
    """Return how many pages of this kind a patient has, 1 to 4."""
    least, most = MOST_PAGES.get(kind, (1, 1))
    return least + _number(f"{patient}:{kind}") % (most - least + 1)


def mds_ids(patient: int, page: int) -> list[str]:
    """Return the ids of a patient's assessments on one page, 5 to 10 of them."""
    least, most = MDS_PER_PAGE
    return [f"MDS-{patient}-{page}-{n}" for n in range(least + _number(f"{patient}:mds:{page}") % (most - least + 1))]


def patient_page(kind: str, patient: int, page: int) -> dict[str, Any]:
    """Return one page of one patient: a record, and whether there are more."""
    total = pages_of(kind, patient)
    record: dict[str, Any] = {"id": f"{kind}-{patient}-{page}", "patientId": patient, "note": f"patient's {kind}"}
    if kind == "assessments":
        record["mdsIds"] = mds_ids(patient, page)
    paging = {"hasMore": page < total, "page": page, "total": total, "pageSize": 1}
    return {"data": [record], "patientId": patient, "paging": paging}


def batch_rows(kind: str, patients: list[int], sizes: tuple[int, int]) -> list[dict[str, Any]]:
    """Return all pages of all patients in one answer; `sizes` are records a page and patients a facility."""
    page_size, per_facility = sizes
    if kind == "mds":
        return [
            {
                "patient_id": p,
                "facility_id": (p - 1) // per_facility + 1,
                "mds_id": f"MDS-{p}-{pages_of('assessments', p)}",
            }
            for p in patients
        ]
    return [
        {
            "patient_id": patient,
            "facility_id": (patient - 1) // per_facility + 1,
            "page": page,
            "records": [{"id": f"{kind}-{patient}-{page}-{n}", "note": "it's fine"} for n in range(page_size)],
        }
        for patient in patients
        for page in range(1, pages_of(kind, patient) + 1)
    ]


def bundle(patient: int, page: int, payload_kb: int) -> dict[str, Any]:
    """Return one page of a patient's records as a bundle of 2 to 5 pages, padded to about `payload_kb`."""
    pages = 2 + _number(f"{patient}:bundle") % 4
    entry = {"resource": {"resourceType": "Observation", "id": f"{patient}-{page}", "text": "x" * payload_kb * 1024}}
    return {
        "resourceType": "Bundle",
        "meta": {"page": page, "total_pages": pages, "has_more": page < pages, "patient_id": patient},
        "entry": [entry],
    }


def _number(text: str) -> int:
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16)
