"""cpu: which kernels this processor can run (see cpu.pyx)."""

def use(name: str) -> None:
    """Choose a target by name, or the best with "auto".  ValueError: unknown; RuntimeError: cannot run here."""

FETCHES: tuple[str, ...]

def choose(stream: tuple[int, str, int] | None = None, many_tokens: int = 0) -> None:
    """How weights are read (rows side by side, cache, bytes ahead), tokens from which kernels do what pays for many;
    None, 0: those of this build.
    """

def chosen_now() -> tuple[tuple[int, str, int], int]:
    """The two."""

def isa() -> str:
    """Name of the row in use."""

def isas() -> list[str]:
    """Rows in this build, best last."""

def supported() -> list[str]:
    """Rows that this processor can run, best last."""
