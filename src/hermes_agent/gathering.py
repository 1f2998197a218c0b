"""Everything the system text is made of, read from disk once, at the beginning of an epoch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from hermes_agent import context_files, skills, system_text
from hermes_agent.memory import MemoryStore
from hermes_agent.models.base import ToolSpec
from hermes_agent.setup import Setup

_PLATFORMS = {
    "cli": "You are talking in a terminal. Plain text and simple Markdown are shown well.",
    "telegram": "You are talking in Telegram. Keep answers short; Markdown is rendered.",
    "api_server": "You are answering through an API.",
}


def gather(setup: Setup) -> tuple[str, Sequence[ToolSpec]]:
    """(system text, tools) for a new epoch."""
    soul = setup.home / "SOUL.md"
    names = {spec["name"] for spec in setup.specs}
    parts = system_text.Parts(
        identity=soul.read_text(encoding="utf-8", errors="replace") if soul.is_file() else "",
        skills=skills.discover(setup.home, setup.tree, platform=setup.platform).index()
        if "skill_view" in names
        else "",
        platform_hint=_PLATFORMS.get(setup.platform, ""),
        extra=setup.extra_text,
        project=context_files.read(setup.workdir, setup.tree) if setup.with_context_files else "",
        memory=_memory(setup),
        model=setup.endpoint.model,
        provider=setup.endpoint.provider,
        sandbox=_sandbox(setup) if "terminal" in names else "",
        day=dt.datetime.fromtimestamp(setup.db.clock(), tz=dt.UTC).strftime("%A, %d %B %Y"),
    )
    return system_text.build(parts), setup.specs


def _sandbox(setup: Setup) -> str:
    from hermes_agent.execution import executor  # late: 20 ms that only a turn needs

    return executor.wall_of(setup.tree).said


def _memory(setup: Setup) -> str:
    """A person's memory enters only conversations that person owns alone; the caller has seen to `person_id`."""
    if not setup.with_memory or setup.person_id is None:
        return ""
    return MemoryStore(setup.home, setup.person_id, config=setup.tree).snapshot()
