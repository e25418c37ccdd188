"""KVSpace: the memory of all KV caches of one model: the plan, the page pool, the spill file, and new states within the
plan.

It refuses before it allocates.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edge.amounts import human
from edge.cache.plan import Plan
from edge.cache.state import FEW_ROWS, KVState
from edge.errors import MemoryRefused
from edge.model.model import Model

#: bytes that NumPy takes (measured: 11.5 MB)
NUMPY_BYTES = 12_500_000


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if isinstance(value, tuple) else value


class KVSpace:
    """The KV caches of one model.  ``new_cache``: makes caches instead of :class:`pyx.kv.KVCache`; for tests."""

    def __init__(self, model: Model, plan: Plan, new_cache: Callable[[], Any] | None = None) -> None:
        self.model = model
        self.plan = plan
        self.pool: Any = None  # of pages that caches share; None until there is a reason for one
        self._new_cache = new_cache
        self._pooled = plan.room is not None
        self._states: weakref.WeakSet[KVState] = weakref.WeakSet()
        self._charged = 0  # bytes of the room that are not for pages
        self._making = threading.Lock()  # of a state: one after the other
        #: frees what others keep in the pool, before idle states are freed; False: there is nothing
        self.others: Callable[[], bool] = lambda: False
        self._lock = threading.RLock()  # the garbage collector may end an answer while it is held

    @property
    def page_plan(self) -> dict[str, Any]:
        """The facts in which two plans must agree so that their caches can hold the same pages, as JSON has them."""
        facts = {**self.plan.cache, "shape": self.model.config.kv_shape}
        own = ("windows", "recurrent", "snapshots")  # of the model itself; most have none
        return {name: _listed(value) for name, value in facts.items() if value or name not in own}

    def share_pages(self) -> None:
        """From now on, caches take their pages from one pool, so that several caches can hold the same pages."""
        self._pooled = True

    def new_cache(self, plan: Plan | None = None) -> Any:
        """An empty KV cache with the planned size; with another ``plan``, outside the pool, for comparisons."""
        if self._new_cache is not None:
            return self._new_cache()
        from pyx.kv import KVCache, PagePool

        pool = None
        if plan is None and self._pooled:
            with self._lock:
                if self.pool is None:
                    self.pool = PagePool(huge=True)
                    self._over()
                pool = self.pool
        config, plan = self.model.config, plan or self.plan
        return KVCache(*config.kv_shape, **plan.cache, pool=pool, spill=plan.offload)

    def new_sampler(self, seed: int = 0) -> Any:
        """The random numbers and tables of one state."""
        from pyx.tokens import Sampler

        return Sampler(self.model.config.n_vocab, seed, self.model.unused)

    def new_state(self) -> KVState:
        """An empty state, which has no memory before :meth:`take`."""
        state = KVState(self.model)
        weakref.finalize(state, self._over).atexit = False  # called after it has left the set
        return state

    def reserve(self, state: KVState) -> None:
        """Keep the memory of a state until :meth:`release`."""
        with self._lock:
            state.busy = True

    def take(self, state: KVState) -> None:
        """Reserve a state, and give it memory if it has none; as many have some as are planned, so an idle one may be
        freed.  Raises MemoryRefused.
        """
        self.reserve(state)
        if state.kv is not None:
            return
        planned = self.plan.parallel
        try:
            while planned is not None and len(self._states) >= planned and self.give_way():
                pass
            with self._making:
                cache = self.new_cache()
                while self._over(1) > 0:
                    if not self.make_room():
                        raise MemoryError("the memory limit is reached")
                rows = memoryview(array("f", [0.0]) * (self.model.config.n_vocab * FEW_ROWS))
                state.fill(cache, self.new_sampler(), rows)
                with self._lock:
                    self._states.add(state)
        except MemoryError as error:
            raise MemoryRefused(f"no memory for a session: {error}") from None
        finally:
            state.busy = state.kv is not None

    def release(self, state: KVState) -> None:
        """Mark a state as idle."""
        with self._lock:
            state.used, state.busy = time.monotonic(), False

    def free(self, state: KVState) -> None:
        """Free the memory of a state."""
        with self._lock:
            state.free()
            self._states.discard(state)
            self._over()

    def forget(self, state: KVState, before: float) -> bool:
        """Free an idle state that was last used before this time, and forget its tokens.  Returns whether it was."""
        with self._lock:
            idle = not state.busy and state.used < before
            if idle:
                self.free(state)
                state.tokens, state.asked, state.typed = array("i"), 0, None
            return idle

    @property
    def nbytes(self) -> int:
        """Bytes of the caches of all states now."""
        return sum(state.nbytes for state in list(self._states))

    def charge(self, nbytes: int) -> None:
        """Leave so much less room for pages, because :class:`edge.cache.store.Store` needs it for other things."""
        with self._lock:
            self._charged = nbytes
            self._over()

    def _over(self, coming: int = 0) -> int:
        """Limit the pages to what the logits and samplers of all states, and of those to come, leave; return the bytes
        that are too many.
        """
        with self._lock:
            plan, pool = self.plan, self.pool
            if pool is None or plan.room is None:
                return 0
            more = max(0, len(self._states) + coming - (plan.parallel or 1))
            pool.limit = plan.room - self._charged - more * plan.footprint.session
            return int(pool.used - pool.limit)

    def admit_numpy(self) -> None:
        """Plan what NumPy takes, unless it is loaded; as :meth:`admit_forms`."""
        if "numpy" not in sys.modules:
            program = self.plan.footprint.program + NUMPY_BYTES
            self._admit(NUMPY_BYTES, "NumPy takes", program=program)

    def admit_forms(self) -> None:
        """Plan the first answers that follow a grammar, unless they are planned: with a limit, they take what it leaves
        for pages beyond the planned contexts, of which some are freed.  Raises MemoryRefused if that is too little.
        """
        if (plan := self.plan).footprint.vocabulary:
            return
        from edge.constrain.vocabulary import CODE_BYTES, bytes_for

        need = bytes_for(self.model.config.n_vocab, plan.parallel or 1)
        need += 0 if "llguidance" in sys.modules else CODE_BYTES
        self._admit(need, "answers that follow a grammar take", vocabulary=need)

    def _admit(self, need: int, what: str, **parts: int) -> None:
        """Plan ``need`` bytes more, which make these ``parts`` of the footprint.  Raises MemoryRefused."""
        plan, pool = self.plan, self.pool
        left = need if plan.limit is None else plan.limit - plan.total_bytes
        if need <= left:
            self._use(replace(plan, footprint=plan.footprint._replace(**parts)))
            if plan.limit is None or pool is None:
                return
            while (over := self._over()) > 0 and self.make_room():
                pass
            left = need - over
            pool.trim()
        if need > left:
            self._use(plan)
            raise MemoryRefused(f"{what} {human(need)}, the memory limit leaves {human(max(0, left))}")

    def _use(self, plan: Plan) -> None:
        with self._lock:
            self.plan = plan
            self._over()

    def make_room(self) -> bool:
        """Free memory for an answer that needs it: of beginnings that are kept, then of idle states."""
        return self.others() or self.give_way()

    def make_room_for(self, nbytes: int) -> None:
        """Free memory until pages of so many bytes fit.  Raises MemoryError if they cannot."""
        pool = self.pool
        if pool is None or pool.limit is None:
            return
        while pool.used + nbytes > pool.limit:
            if not self.make_room():
                raise MemoryError(f"{nbytes / 1e6:.1f} MB of KV pages are needed, the memory limit leaves "
                                  f"{max(0, pool.limit - pool.used) / 1e6:.1f} MB")
        if pool.touched + nbytes > pool.limit:
            pool.trim()

    def give_way(self) -> bool:
        """Free the state that was idle longest.  Returns False if there is none."""
        with self._lock:
            idle = [state for state in self._states if not state.busy]
            if idle:
                self.free(min(idle, key=lambda state: state.used))
            return bool(idle)

    def close(self) -> None:
        """Release the pool; its memory is freed with the last cache that uses it."""
        with self._lock:
            self.pool = None
