"""examples/home: with the clock behind the question nothing is read again."""

from __future__ import annotations

import pytest

from examples.home import home
from tests.http_service import serving


@pytest.mark.usefixtures("bundled_model")
def test_only_a_clock_first_has_all_of_it_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("--ctx", "2048") as server:
        home.main(f"http://{server.host}:{server.port}")
    title, *lines, total = capsys.readouterr().out.splitlines()
    assert title.startswith("turn") and len(lines) == len(home.QUESTIONS)
    turns = [[int(word) for word in line.replace("|", " ").split()] for line in lines]
    assert turns[0][3] > 150
    for _, read, prompt, read_last, _ in turns[1:]:
        assert read > 0.8 * prompt - 64 and read > 150 and read_last < 64
    (read, _, read_last, _) = map(int, total.replace("|", " ").split()[1:])
    assert read > 5 * read_last
