"""JSON lines (``chat --jsonl``): what the protocol takes; tests/cli/test_contract.py has its events."""

from __future__ import annotations

import json
import time

import pytest

from edge.errors import UsageError
from edge.serve import bodies
from edge.serve.calls import Refusal
from edge.serve.protocols import jsonl


@pytest.mark.parametrize("timeout", ["9" * 400, "9" * 5000, "1e400", "1e10", "0", "-1", "true", '"1"', "[]", "NaN"])
def test_a_timeout_is_a_number_of_seconds(timeout: str) -> None:
    """Each other value is refused in one clear line."""
    request = json.dumps({"op": "chat", "messages": [{"role": "user", "content": "x"}], "timeout": 0})
    line = request.replace('"timeout": 0', f'"timeout": {timeout}').encode()
    with pytest.raises((Refusal, UsageError)) as refused:
        jsonl.chat(jsonl.parse(line), {})
    wrong = {"NaN": "NaN is not JSON", "9" * 5000: "a whole number has 5000 digits; the limit is 4000"}
    said = wrong.get(timeout, "it must be a number of seconds, above 0 to 1e+09")
    assert said in str(refused.value) and "\n" not in str(refused.value)
    deadline = jsonl.chat(jsonl.parse(request.replace('"timeout": 0', '"timeout": 5').encode()), {})[2]
    assert deadline is not None and 0 < deadline - time.monotonic() <= 5


def test_the_size_of_a_request_is_that_in_memory() -> None:
    """Few bytes can be many values, or characters of four bytes each."""
    for text in ("", "tea", "Tee für zwei", "茶", "tea \U0001f375", "\uffff"):
        width = 1 if text.isascii() else 4 if max(text) > "\uffff" else 2
        assert bodies.size_of(text.encode()) == len(text) * width
        assert bodies.size_of(json.dumps(text).encode()) >= len(text) * width
    limit = 1 << 20
    signs, escapes = '"' + "[,{" * 100_000 + '"', '["' + "\\" * 50_000 + '", "' + '\\"' * 70_000 + '"]'
    for fine in (signs, escapes, "[" + "0," * 250_000 + "0]"):
        assert bodies.parse(fine.encode(), limit, "long") == json.loads(fine)
    wide = '"' + "x" * 300_000 + "\U0001f375" + '"'
    for large in ("[" + "{}," * 80_000 + "{}]", "[" + '"",' * 310_000 + '""]', '["\\"",' + "[]," * 80_000 + "0]", wide):
        with pytest.raises(Refusal) as refused:
            bodies.parse(large.encode(), limit, "long")
        assert (refused.value.status, refused.value.code) == (413, "long")
