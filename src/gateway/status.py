"""One gateway a home, and its health, from locks and heartbeats.

The lock is the operating system's, on `<home>/gateway.lock`, and ends with the process however it ends. `gateway.pid`
and `gateway_state.json` are for people and other tools: nothing is decided by their existence. Whether a gateway runs
is whether somebody holds the lock; how it is doing is when it last wrote, heard a platform and delivered something, and
those moments are shown with their age, so that a gateway that hangs cannot look well.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hermes_agent import process_identity
from hermes_config.errors import HermesError
from hermes_config.home import hermes_home, private_open

KIND = "hermes-gateway"
HEARTBEAT_SECONDS = 2.0
SILENT_SECONDS = 15.0
"""A gateway that has not written for so long is not well, whatever it wrote last."""
_LOCK_TRIES, _LOCK_PAUSE = 2, 0.05
_FACTS = ("turns_running", "draining")


class GatewayRunning(HermesError):
    """A gateway is running on this home already."""

    default_hint = "hermes gateway status shows it; hermes gateway stop ends it."


def acquire_gateway_lock(home: Path) -> IO[Any]:
    """The right to be this home's gateway, held until the file is closed or the process ends.

    Raises `GatewayRunning` with the process that has it.
    """
    for _ in range(_LOCK_TRIES):
        if (file := _locked(home)) is not None:
            return file
        time.sleep(_LOCK_PAUSE)  # somebody may be looking at the lock
    pid = read_pid(home)
    raise GatewayRunning("a gateway runs on this home already" + (f" (process {pid})" if pid else ""), where=str(home))


def is_running(home: Path) -> bool:
    """Whether some process holds the lock at this moment."""
    if not (home / "gateway.lock").exists():
        return False
    file = _locked(home, "rb", shared=True)  # looking is possible on a home that cannot be written
    if file is None:
        return True
    file.close()
    return False


def _locked(home: Path, mode: str = "a+b", *, shared: bool = False) -> IO[Any] | None:
    """The lock's file, locked; None when another process has the lock. Those who look share it with each other."""
    file = private_open(home / "gateway.lock", mode)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


# -- for people and other tools ------------------------------------------------------------------------------


def write_pid_file(home: Path | None = None) -> None:
    """Only the holder of the lock writes it, so a file of a process that died is simply replaced."""
    home = home or hermes_home()
    record = {
        "pid": os.getpid(),
        "kind": KIND,
        "argv": sys.argv,
        "start_time": process_identity.started(os.getpid()) or 0,
    }
    with private_open(home / "gateway.pid") as file:
        json.dump(record, file)


def remove_pid_file(home: Path | None = None) -> None:
    """Ours alone: that of another process stays."""
    home = home or hermes_home()
    if _record(home / "gateway.pid").get("pid") == os.getpid():
        with contextlib.suppress(FileNotFoundError):
            (home / "gateway.pid").unlink()


def read_pid(home: Path) -> int | None:
    """The process that wrote `gateway.pid`, if it is still the same one."""
    record = _record(home / "gateway.pid")
    pid, began = record.get("pid"), record.get("start_time")
    if not isinstance(pid, int) or record.get("kind") != KIND:
        return None
    now = process_identity.started(pid)
    return pid if now is not None and (not began or now in (0, began)) else None


def seconds_away(home: Path) -> float:
    """Since a gateway was last heard of here; 0 when there was none."""
    state = _record(home / "gateway_state.json")
    heard = _number(state.get("updated_at"))
    # One that was lost may have lived on after it was last heard of, until the next beat was due.
    beat = 0.0 if state.get("gateway_state") == "stopped" else HEARTBEAT_SECONDS
    return max(0.0, time.time() - heard - beat) if heard else 0.0


def write_runtime_status(home: Path | None = None, **facts: Any) -> None:
    """Merge into `gateway_state.json`: a value of None takes the entry out, one that is not named stays."""
    home = home or hermes_home()
    file = home / "gateway_state.json"
    merged = {**_record(file), "pid": os.getpid(), "kind": KIND, **facts, "updated_at": time.time()}
    draft = file.with_name(f".gateway_state.{os.getpid()}.tmp")
    with private_open(draft) as out:
        json.dump({name: value for name, value in merged.items() if value is not None}, out, indent=2)
    draft.replace(file)  # whole or not at all; not durable, because it says nothing after a power cut


def _record(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# -- evidence ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformStatus:
    name: str
    last_contact: float | None
    problem: str
    retry_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What is known of a home's gateway at the moment `at`."""

    at: float
    running: bool
    pid: int | None = None
    started_at: float | None = None
    heard_at: float | None = None
    """When it last wrote its state: it does so every two seconds."""
    lost_at: float | None = None
    """When the last one was last heard of, if it ended without saying so: killed, or the machine went down."""
    platforms: tuple[PlatformStatus, ...] = ()
    api: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """It holds the lock and does nothing: it hangs, or its disk does."""
        return self.running and (self.heard_at is None or self.at - self.heard_at > SILENT_SECONDS)


def read_status(home: Path) -> Status:
    """From the lock and what the process last wrote; its words count only as long as it runs."""
    now, running = time.time(), is_running(home)
    state = _record(home / "gateway_state.json")
    if not running:
        lost = state.get("gateway_state") in ("running", "draining")
        return Status(at=now, running=False, lost_at=_number(state.get("updated_at")) if lost else None)
    platforms = state.get("platforms")
    found = [
        PlatformStatus(
            name=str(name), last_contact=_number(one.get("last_contact")), problem=str(one.get("problem") or ""),
            retry_at=_number(one.get("retry_at")),
        )
        for name, one in (platforms.items() if isinstance(platforms, dict) else ())
        if isinstance(one, dict)
    ]  # fmt: skip
    return Status(
        at=now, running=True, pid=read_pid(home), started_at=_number(state.get("started_at")),
        heard_at=_number(state.get("updated_at")), platforms=tuple(found), api=str(state.get("api") or ""),
        facts={name: state.get(name) for name in _FACTS},
    )  # fmt: skip


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
