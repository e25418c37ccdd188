"""A batch on a local cluster of two workers, by Ray and by Dask (examples/); `make test-clients` installs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EDGE = ROOT / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


@pytest.mark.parametrize(("module", "example"), [("ray", "ray_batch.py"), ("dask.distributed", "dask_batch.py")])
def test_every_request_is_answered_once(tmp_path: Path, module: str, example: str) -> None:
    pytest.importorskip(module)
    environment = {**os.environ, "RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    if module == "ray":  # it wants shared memory, ports and processes, which not every machine gives
        try:
            subprocess.run([sys.executable, "-c", "import ray; ray.init(num_cpus=1); ray.shutdown()"], check=True,
                           capture_output=True, timeout=300, env=environment)
        except subprocess.SubprocessError as error:
            pytest.skip(f"Ray does not start a cluster here: {error}")
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"custom_id": str(i), "body": body}) + "\n" for i in range(100)))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", ""), str(EDGE)]))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), str(source), str(target)], cwd=tmp_path, text=True,
        capture_output=True, timeout=500, env=environment,
    )
    assert done.returncode == 0 and "100 requests, 0 errors" in done.stdout, done.stderr[-2000:]
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(int(each["custom_id"]) for each in answers) == list(range(100))
    assert len({each["response"]["body"]["choices"][0]["message"]["content"] for each in answers}) == 1
