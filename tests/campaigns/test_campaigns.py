"""The campaigns for some seconds: they run, and find nothing."""

from __future__ import annotations

import pytest

from tests.campaigns import faults, files, routes


@pytest.mark.parametrize("name", routes.SERVICES)
def test_random_requests(name: str) -> None:
    counts, wrong = routes.of_one(name, 600, 7, most=150)
    assert not wrong and counts["connections"] == 150


def test_faults_of_the_system() -> None:
    counts, wrong = faults.campaign(300, 7, most=len(faults.FAULTS))
    assert not wrong and sum(counts.values()) == len(faults.FAULTS)


def test_mutated_files() -> None:
    counts, wrong = files.campaign(600, 7, most=400)
    assert not wrong and sum(counts.values()) == 400
