"""pyx: the compiled floor.  See docs/architecture.md for its rooms.

A thread that waits for the others spins briefly and then sleeps.  libgomp's own default spins for milliseconds, which
on a board that also draws a user interface takes the processor from the very thread one waits for: on a busy machine a
2B-4T-shaped model gave 0.4 to 2.8 tokens/s with it and 3.8 to 6.4 with less (benchmarks/log#waiting).  libgomp reads
its environment once, when the first extension is loaded; a caller's own OMP_WAIT_POLICY or GOMP_SPINCOUNT wins.
Within a step the barriers are our own (kernels/barrier.h), in the same spirit.
"""

import os

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
    os.environ["GOMP_SPINCOUNT"] = "4000"
    try:
        from pyx import machine as _loads_libgomp  # noqa: F401
    except ImportError:
        pass  # not built: the first use raises an error
    finally:
        del os.environ["GOMP_SPINCOUNT"]
