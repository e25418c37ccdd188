"""The one line in which calls wait: who is granted, who waits, who is refused."""

from __future__ import annotations

import threading

import pytest

from edge.errors import Busy, UsageError
from edge.session.admission import Admission


def test_places_are_granted_in_order_and_the_line_ends() -> None:
    admission = Admission(1, 2)
    first, second, third = (admission.enter()[0] for _ in range(3))
    assert (first.granted, second.granted, admission.running, admission.waiting) == (True, False, 1, 2)
    assert [each.position for each in (first, second, third)] == [0, 0, 1]
    assert first.expected == 0 < second.expected < third.expected
    with pytest.raises(Busy) as refused:
        admission.enter()
    assert refused.value.retry_after >= 1
    admission.leave(first)
    admission.leave(first)  # a second time changes nothing
    assert second.granted and not third.granted
    admission.leave(third)  # gives up
    admission.leave(second)
    assert (admission.running, admission.waiting) == (0, 0)


def test_several_answers_are_admitted_together_or_not_at_all() -> None:
    admission = Admission(2, 2)
    three = admission.enter(3)
    assert [each.granted for each in three] == [True, True, False] and three[2].position == 0
    with pytest.raises(Busy):
        admission.enter(2)
    assert (admission.running, admission.waiting) == (2, 1)
    admission.enter(1)
    with pytest.raises(UsageError, match="several requests"):
        admission.enter(5)  # never


def test_a_line_of_no_length_refuses_what_cannot_run_at_once() -> None:
    admission = Admission(1, 0)
    (place,) = admission.enter()
    with pytest.raises(Busy):
        admission.enter()
    admission.leave(place)
    assert admission.enter()[0].granted


def test_what_reads_ahead_gives_way() -> None:
    """It takes nobody's place in the line; who comes runs when it has returned its slot, which has the cache."""
    admission, told = Admission(2, 0), []
    (ahead,) = admission.enter(stop=lambda: told.append("first"))
    assert ahead.granted and not told
    (later,) = admission.enter(stop=lambda: told.append("second"))
    assert told == ["first"] and not later.granted
    two = admission.enter(2)
    assert told == ["first", "first", "second"] and not any(each.granted for each in two)
    assert [each.position for each in two] == [0, 0]
    admission.leave(later)
    admission.leave(ahead)
    assert all(each.granted for each in two)
    with pytest.raises(Busy):
        admission.enter(stop=lambda: told.append("third"))
    admission.leave(two[0])
    with pytest.raises(Busy):
        admission.enter(stop=lambda: told.append("third"))
    admission.leave(two[1])
    assert admission.enter(stop=lambda: None)[0].granted and len(told) == 3


def test_a_thread_does_not_wait_for_itself() -> None:
    admission = Admission(1, 1)
    first, second = admission.enter(2)
    with pytest.raises(Busy):
        admission.wait(second)
    threading.Timer(0.05, admission.leave, (first,)).start()
    other = threading.Thread(target=lambda: setattr(first, "thread", threading.get_ident()))
    other.start()
    other.join()
    while not second.granted:
        admission.wait(second)
