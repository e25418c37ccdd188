"""The campaigns of tests/campaigns for some seconds: they run, and find nothing (docs/hostile.md)."""

from __future__ import annotations

import pytest

from tests.campaigns import faults, routes, service


def test_hostile_clients() -> None:
    counts, wrong = service.campaign(seconds=3, clients=6, seed=7)
    assert not wrong and sum(counts.values()) > 0


@pytest.mark.parametrize("name", routes.SERVICES)
def test_random_requests(name: str) -> None:
    counts, wrong = routes.campaign(name, seconds=600, clients=4, seed=7, most=150)
    assert not wrong and counts["connections"] == 150


def test_faults_of_the_system() -> None:
    counts, wrong = faults.campaign(seconds=300, seed=7, most=len(faults.FAULTS))
    assert not wrong and sum(counts.values()) == len(faults.FAULTS)
