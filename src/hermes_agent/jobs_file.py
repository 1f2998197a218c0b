"""`cron/jobs.json` of a hermes-agent home: which of its jobs Hermes can run, and taking them over.

`read` maps one row; `take` stores what the owner confirmed and marks it in the file (`"taken": true`), so that the
inventory of the home names only the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent import jobs, schedules
from hermes_agent.jobs import JobRequest
from hermes_agent.schedules import Schedule
from hermes_config.errors import HermesError
from hermes_config.home import replacing

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB

_NOT_YET: Mapping[str, str] = {
    "script": "its script runs outside the sandbox there; hermes cron add --script adds it again",
    "no_agent": "it is a script only; hermes cron add --script adds it again",
    "context_from": "it reads the output of another job",
    "workdir": "it runs in a folder of its own",
    "base_url": "it uses a server of its own; name a provider instead",
}
_LARGEST = 4 << 20


class Taken(NamedTuple):
    """What came of a file: the names of jobs that run here now, and (name, reason) of the others."""

    names: list[str]
    left: list[tuple[str, str]]


def rows(file: Path) -> list[dict[str, Any]]:
    """The jobs of a file; raises OSError or ValueError when it cannot be read."""
    return _rows_of(document(file))


def document(file: Path) -> Any:
    """The content of a JSON file of hermes-agent; raises OSError or ValueError when it cannot be read."""
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"larger than {_LARGEST:,} bytes")
    return json.loads(file.read_text(encoding="utf-8-sig"))


def _rows_of(document: Any) -> list[dict[str, Any]]:
    found = document.get("jobs") if isinstance(document, dict) else document
    if not isinstance(found or [], list):
        raise ValueError("it holds no list of jobs")
    return [row for row in found or () if isinstance(row, dict)]


def is_off(row: Mapping[str, Any]) -> bool:
    return row.get("enabled") is False or row.get("state") in ("paused", "completed")


def is_new(row: Mapping[str, Any]) -> bool:
    return not row.get("taken") and row.get("state") != "completed"


def name_of(row: Mapping[str, Any]) -> str:
    return str(row.get("name") or row.get("id") or "?")[:80]


def read(row: Mapping[str, Any], *, now: float, zone: str) -> JobRequest | str:
    """The job, or why Hermes cannot run it."""
    for key, reason in _NOT_YET.items():
        if row.get(key):
            return reason
    if not str(row.get("prompt") or "").strip():
        return "it has no prompt"
    repeat = row.get("repeat")
    times = repeat.get("times") if isinstance(repeat, Mapping) else None
    schedule = _schedule(row.get("schedule"), row.get("schedule_display"), now, zone)
    if isinstance(schedule, str):
        return schedule
    if times and schedule.kind != "once":
        return f"it ends after {times} runs"
    if "," in (deliver := str(row.get("deliver") or "origin")) or deliver == "all":
        return f"it is sent to several chats ({deliver[:40]})"
    skills = row.get("skills") or ([row["skill"]] if row.get("skill") else [])
    tools = row.get("enabled_toolsets")
    return JobRequest(
        schedule=schedule, prompt=str(row["prompt"]), name=name_of(row), skills=tuple(map(str, skills)),
        model=row.get("model") or None, provider=row.get("provider") or None,
        toolsets=tuple(map(str, tools)) if isinstance(tools, list) else None,
    )  # fmt: skip


def _schedule(given: Any, shown: Any, now: float, zone: str) -> Schedule | str:
    kept = given if isinstance(given, Mapping) else {}
    kind = kept.get("kind")
    try:
        if kind == "interval":
            return schedules.parse(f"every {int(kept['minutes'])} minutes", now=now, zone=zone)
        text = {"cron": kept.get("expr"), "once": kept.get("run_at")}.get(str(kind), given) or shown
        return schedules.parse(str(text or ""), now=now, zone=zone)
    except (KeyError, TypeError, ValueError):
        return "its schedule cannot be read"
    except schedules.UnclearSchedule as error:
        return f"its schedule: {error.what}"


def take(db: SessionDB, config: Config, file: Path, *, keep: bool = False) -> Taken:
    """Store the jobs of a file as the owner's, and mark them in it; nothing else in it changes. A job that is stored
    and not marked, after a crash, is not stored again. `keep`: the file stays as it is."""
    owner, now = db.people.owner(), db.clock()
    names: list[str] = []
    left: list[tuple[str, str]] = []
    found = document(file)
    for row in _rows_of(found):
        if not is_new(row):
            continue
        wanted = read(row, now=now, zone=jobs.zone_of(owner, config))
        if reason := wanted if isinstance(wanted, str) else _store(db, config, row, wanted):
            left.append((name_of(row), reason))
        else:
            names.append(name_of(row))
            row["taken"] = True
    if names and not keep:
        with replacing(file) as text:
            text.write(json.dumps(found, indent=2, ensure_ascii=False))
    return Taken(names, left)


def _store(db: SessionDB, config: Config, row: Mapping[str, Any], wanted: JobRequest) -> str:
    """Store one job, unless it is stored already; returns why not."""
    owner, deliver = db.people.owner(), str(row.get("deliver") or "origin")
    origin = row.get("origin") if isinstance(row.get("origin"), Mapping) else {}
    assert isinstance(origin, Mapping)
    job_id = _id_of(row)
    if db.jobs.get(job_id) is not None:
        return ""
    try:
        if deliver == "local":
            address = jobs.local_address()
        elif deliver != "origin":
            address = jobs.address_for(db, config, owner, None, to=deliver, any_chat=True)
        elif origin.get("platform") and origin.get("chat_id"):
            thread = f":{origin['thread_id']}" if origin.get("thread_id") else ""
            target = f"{origin['platform']}:{origin['chat_id']}{thread}"
            address = jobs.address_for(db, config, owner, None, to=target, any_chat=True)
        else:
            address = jobs.address_for(db, config, owner, None)
        jobs.make(db, config, owner, wanted, address, job_id=job_id, paused=is_off(row))
    except HermesError as error:
        return error.what
    return ""


def _id_of(row: Mapping[str, Any]) -> str:
    """The job's own id if it is one of ours in form, else one that follows from what the row says."""
    given = str(row.get("id") or "")
    if len(given) == 12 and set(given) <= set("0123456789abcdef"):
        return given
    said = {name: row.get(name) for name in ("id", "name", "prompt", "schedule", "deliver", "origin")}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
