"""The campaigns of tests/campaigns for some seconds: they run, and find nothing (docs/hostile.md)."""

from __future__ import annotations

from tests.campaigns import faults, service


def test_hostile_clients() -> None:
    counts, wrong = service.campaign(seconds=3, clients=6, seed=7)
    assert not wrong and sum(counts.values()) > 0


def test_faults_of_the_system() -> None:
    counts, wrong = faults.campaign(seconds=300, seed=7, most=len(faults.FAULTS))
    assert not wrong and sum(counts.values()) == len(faults.FAULTS)
