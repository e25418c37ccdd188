"""recurrent: the states of one session's gated delta layers, and snapshots of them (see recurrent.pyx)."""

def bytes_for(shape: tuple[int, int, int, int, int], most: int) -> int:
    """Bytes of the states of one session with ``most`` snapshots: those and the latest two, and the open chunks."""
