"""One gateway a home by the system's lock; status from evidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway import status

pytestmark = pytest.mark.slow

_HOLD = """
import sys, time
from pathlib import Path
from gateway import status
home = Path(sys.argv[1])
lock = status.acquire_gateway_lock(home)
status.write_pid_file(home)
status.write_runtime_status(home, started_at=time.time(), platforms={"telegram": {"last_contact": 5.0, "problem": ""}})
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_gateway_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with pytest.raises(status.GatewayRunning, match=f"process {holder.pid}"):
                status.acquire_gateway_lock(tmp_path)
            seen = status.read_status(tmp_path)
            assert (seen.running, seen.pid, seen.silent) == (True, holder.pid, False)
            assert [(one.name, one.last_contact) for one in seen.platforms] == [("telegram", 5.0)]
        finally:
            holder.kill()
    # However it ended, nothing has to be cleaned up: its files say nothing any more.
    assert (tmp_path / "gateway.pid").exists()
    seen = status.read_status(tmp_path)
    assert (seen.running, seen.pid, seen.platforms) == (False, None, ())
    status.acquire_gateway_lock(tmp_path).close()


def test_of_several_that_start_at_once_one_wins(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for _ in range(4)
    ]
    try:
        until = time.monotonic() + 20
        while sum(one.poll() is not None for one in racers) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        (winner,) = [one for one in racers if one.poll() is None]
        assert winner.stdout is not None and winner.stdout.readline() == b"held\n"
        assert status.read_status(tmp_path).pid == winner.pid
    finally:
        for one in racers:
            one.kill()
            one.communicate()


def test_a_gateway_that_hangs_does_not_look_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = status.acquire_gateway_lock(tmp_path)
    status.write_runtime_status(tmp_path, started_at=time.time())
    assert not status.read_status(tmp_path).silent
    late = time.time() + status.SILENT_SECONDS + 1
    monkeypatch.setattr(status.time, "time", lambda: late)
    assert status.read_status(tmp_path).silent
    lock.close()


def test_the_pid_file_of_another_process_stays(tmp_path: Path) -> None:
    (tmp_path / "gateway.pid").write_text(json.dumps({"pid": os.getppid(), "kind": status.KIND, "start_time": 0}))
    status.remove_pid_file(tmp_path)
    assert (tmp_path / "gateway.pid").exists()
    status.write_pid_file(tmp_path)
    assert status.read_pid(tmp_path) == os.getpid()
    status.remove_pid_file(tmp_path)
    assert not (tmp_path / "gateway.pid").exists()


def test_a_number_that_was_used_again_is_not_mistaken_for_the_gateway(tmp_path: Path) -> None:
    record = {"pid": os.getpid(), "kind": status.KIND, "start_time": 12}
    (tmp_path / "gateway.pid").write_text(json.dumps(record))
    assert status.read_pid(tmp_path) is None


def test_status_is_merged_and_none_takes_an_entry_out(tmp_path: Path) -> None:
    status.write_runtime_status(tmp_path, a=1, b=2)
    status.write_runtime_status(tmp_path, b=None, c=3)
    found = json.loads((tmp_path / "gateway_state.json").read_text())
    assert (found["a"], "b" in found, found["c"]) == (1, False, 3)
    (tmp_path / "gateway_state.json").write_text("{half a fi")
    status.write_runtime_status(tmp_path, a=1)
    assert json.loads((tmp_path / "gateway_state.json").read_text())["a"] == 1


def test_the_files_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        lock = status.acquire_gateway_lock(tmp_path)
        status.write_pid_file(tmp_path)
        status.write_runtime_status(tmp_path)
    finally:
        os.umask(old)
    for name in ("gateway.lock", "gateway.pid", "gateway_state.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    lock.close()


def test_those_who_look_do_not_deceive_each_other(tmp_path: Path) -> None:
    status.acquire_gateway_lock(tmp_path).close()
    looking = status.gateway_lock(tmp_path, "rb", shared=True)
    assert looking is not None
    with looking:
        assert not status.is_running(tmp_path), "somebody else looks at the lock, and nobody holds it"


def test_a_start_that_meets_somebody_who_looks_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status.acquire_gateway_lock(tmp_path).close()
    looking = status.gateway_lock(tmp_path, "rb", shared=True)
    assert looking is not None
    monkeypatch.setattr(time, "sleep", lambda seconds: looking.close())
    status.acquire_gateway_lock(tmp_path).close()
