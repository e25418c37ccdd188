"""The second exam: visits written one by one (``unseen.json``) by somebody who had read neither grammar nor first exam.

It is there to be sat, not to be learned from: the grammar is never widened after what fails here.
"""

from __future__ import annotations

import json
from pathlib import Path

from training.exam.requests import Request

VISITS = Path(__file__).with_suffix(".json")


def unseen_requests() -> list[Request]:
    """In the order of the file."""
    return [_request(**visit) for visit in json.loads(VISITS.read_text())]


def _request(subject: str, facts: str, said: list[str], wants: list[list[str]], times: list[str] | None) -> Request:
    told = None if times is None else tuple(time.lower() for time in times)
    amounts = tuple(wants[0]) if subject == "price" else None
    return Request(subject, tuple(said), tuple(map(tuple, wants)), facts, told, amounts)
