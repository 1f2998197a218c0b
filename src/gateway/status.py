"""One gateway a home, and its health, from locks and heartbeats.

The operating system's lock on `<home>/gateway.lock` ends with the process in any case. `gateway.pid` and
`gateway_state.json` are for people and other tools: their existence decides nothing. A gateway runs if a process holds
the lock; its health is the age of its last heartbeat and of its last contact with each platform, so a gateway that
hangs cannot look healthy.
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
from hermes_config.home import gateway_lock, gateway_runs, hermes_home, private_open

KIND = "hermes-gateway"
HEARTBEAT_SECONDS = 2.0
SILENT_SECONDS = 15.0
"""A gateway whose last heartbeat is older is unhealthy."""
_LOCK_TRIES, _LOCK_PAUSE = 2, 0.05
_FACTS = ("turns_running", "draining")
is_running = gateway_runs


class GatewayRunning(HermesError):
    """A gateway is running on this home already."""

    default_hint = "hermes gateway status shows it; hermes gateway stop ends it."


def acquire_gateway_lock(home: Path) -> IO[Any]:
    """Lock this home for one gateway, until the file is closed or the process ends.

    Raises `GatewayRunning` with the process that holds the lock.
    """
    for _ in range(_LOCK_TRIES):
        if (file := gateway_lock(home)) is not None:
            return file
        time.sleep(_LOCK_PAUSE)  # `is_running` of another process may hold it for a moment
    pid = read_pid(home)
    raise GatewayRunning("a gateway runs on this home already" + (f" (process {pid})" if pid else ""), where=str(home))


# -- for people and other tools ------------------------------------------------------------------------------


def write_pid_file(home: Path | None = None) -> None:
    """Write `gateway.pid`. Only the holder of the lock does, so it may replace the file of a dead process."""
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
    """Remove `gateway.pid` if this process wrote it."""
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
    """Seconds since the last heartbeat of a gateway here; 0 when there was none."""
    state = _record(home / "gateway_state.json")
    heard = _number(state.get("updated_at"))
    # A gateway that died may have lived on after its last heartbeat, until the next one was due.
    beat = 0.0 if state.get("gateway_state") == "stopped" else HEARTBEAT_SECONDS
    return max(0.0, time.time() - heard - beat) if heard else 0.0


def write_runtime_status(home: Path | None = None, **facts: Any) -> None:
    """Merge facts into `gateway_state.json`: a value of None removes the entry, other entries stay."""
    home = home or hermes_home()
    file = home / "gateway_state.json"
    merged = {**_record(file), "pid": os.getpid(), "kind": KIND, **facts, "updated_at": time.time()}
    draft = file.with_name(f".gateway_state.{os.getpid()}.tmp")
    with private_open(draft) as out:
        json.dump({name: value for name, value in merged.items() if value is not None}, out, indent=2)
    draft.replace(file)  # atomic, but not durable, because it means nothing after a power cut


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
    """The status of a home's gateway at the time `at`."""

    at: float
    running: bool
    pid: int | None = None
    started_at: float | None = None
    heard_at: float | None = None
    """The last heartbeat; there is one every two seconds."""
    lost_at: float | None = None
    """The last heartbeat of a gateway that did not end properly: it was killed, or the machine went down."""
    platforms: tuple[PlatformStatus, ...] = ()
    api: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Whether it holds the lock without a heartbeat: it hangs, or its disk does."""
        return self.running and (self.heard_at is None or self.at - self.heard_at > SILENT_SECONDS)


def read_status(home: Path) -> Status:
    """The status by the lock and the state file, which counts only while the process runs."""
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
