"""The power fails: of what was not flushed, a random part is missing, and what was acknowledged is there all the same.

The same sweep as in `test_kill_points`, on a disk that forgets (`tests.support.lossy_disk`). A store that does not
flush its commits is found out.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parent / "workloads"
# Without --long, some points only, from a drawn one on: all of them in so many runs.
STRIDE = 37


def _sweep(workload: str, seed: int, *, stride: int, synchronous: str = "FULL") -> subprocess.CompletedProcess[str]:
    options = ["--power-cut", str(seed), "--stride", str(stride), "--synchronous", synchronous]
    options += ["--first", str(1 + seed % stride)]
    command = [sys.executable, "-m", "tests.support.sweep", str(WORKLOADS / f"{workload}.py"), *options]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
@pytest.mark.parametrize("workload", sorted(file.stem for file in WORKLOADS.glob("*.py")))
def test_the_power_fails_at_every_point(
    workload: str,
    synchronous: str,
    seed: int,
    record_property: Callable[[str, object], None],
    pytestconfig: pytest.Config,
) -> None:
    """`FULL`: nothing acknowledged is lost. `NORMAL`: the last operations may be, and nothing is half done."""
    stride = 1 if pytestconfig.getoption("--long") else STRIDE
    done = _sweep(workload, seed, stride=stride, synchronous=synchronous)
    assert done.returncode == 0, done.stdout
    record_property("kill points", done.stdout.strip())


@pytest.mark.parametrize("workload", ["conversations", "messages_in_and_out"])
def test_a_store_that_does_not_flush_is_found_out(workload: str, seed: int) -> None:
    done = _sweep(workload, seed, stride=23, synchronous="OFF")
    assert done.returncode == 1, done.stdout
    assert "in flight: table" in done.stdout, "nothing that was acknowledged is missing"
