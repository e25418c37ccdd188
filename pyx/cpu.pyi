"""cpu: which kernels this processor can run (see cpu.pyx)."""

def use(name: str) -> None:
    """Choose a target by name, or the best with "auto".  ValueError: unknown; RuntimeError: cannot run here."""

def isa() -> str:
    """Name of the row in use."""

def isas() -> list[str]:
    """Rows in this build, best last."""

def supported() -> list[str]:
    """Rows that this processor can run, best last."""
