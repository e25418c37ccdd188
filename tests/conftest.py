"""Fixtures every test file may use: where things are, with a reason to skip where one is absent."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"

# Started in the background by a shell, or by nohup, we inherit an ignored Ctrl-C or hang-up, and so would every program
# the tests start.  A handler of ours is not handed down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# Examples are the same in every run and no test fails because the machine was busy.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository root."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party test data that may not live in the repository (vocabularies); beside it or nowhere."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the checkout (third-party vocabularies)")
    return SHARED_DATA


@pytest.fixture(scope="session")
def bundled_model() -> Path:
    """The model that ships inside the package."""
    models = sorted((ROOT / "edge" / "models").glob("*.gguf"))
    if not models:
        pytest.skip("no bundled model in edge/models")
    return models[0]
