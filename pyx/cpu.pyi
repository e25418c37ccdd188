"""cpu: which kernels this processor can run (see cpu.pyx)."""

def use(name: str) -> None:
    """Choose a target by name, or the best with "auto".  ValueError: unknown; RuntimeError: cannot run here."""

def choose(ahead: int = 0, many_tokens: int = 0) -> None:
    """Bytes that streams are fetched ahead, tokens from which kernels do what pays for many; 0: those of this build."""

def chosen_now() -> tuple[int, int]:
    """The two."""

def isa() -> str:
    """Name of the row in use."""

def isas() -> list[str]:
    """Rows in this build, best last."""

def supported() -> list[str]:
    """Rows that this processor can run, best last."""
