"""The old judge behind the new signature; goes when `approvals.shell.judge` is there."""

from __future__ import annotations

import os.path

from hermes_agent.approvals import judge
from hermes_agent.approvals.judgement import Judgement, Kind, Need, Program

_NETWORK = {"curl", "wget", "ssh", "scp", "rsync", "pip", "npm", "nc"}
_GIT = {"push": "network", "fetch": "network", "pull": "network", "clone": "network"}
_CHANGE = {"rm", "shred", "truncate"}
_GLOBAL = {"-C", "-c", "--git-dir", "--work-tree"}


def judge_action(
    kind: str, text: str, *, workdir: str, workspace: str, home: str, user_home: str | None = None
) -> Judgement:
    found = judge.judge_action(kind, text, workdir=workdir, workspace=workspace, home=home, user_home=user_home)
    programs = tuple(map(_program, found.calls)) if kind == "command" else ()
    if found.level == "never":
        return Judgement("never", found.why, programs=programs)
    if found.level == "harmless" or found.unfamiliar:
        return Judgement("run", programs=programs)
    if kind == "write":
        return Judgement("ask", found.why, needs=(Need("folder", os.path.dirname(text), found.why),))  # noqa: PTH120
    if kind != "command":
        return Judgement("ask", found.why, needs=(Need("host", kind, found.why),))
    needs = tuple(_need(program, found.why) for program in programs if program.name not in ("cd", "echo", "true"))
    return Judgement("ask", found.why, needs=needs or (Need("host", "it", found.why),), programs=programs)


def _program(call: str) -> Program:
    words = call.split()
    name = os.path.basename(words[0]) if words and "…" not in words[0] else None  # noqa: PTH119
    rest = words[1:]
    while name == "git" and rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _GLOBAL else rest[1:]
    return Program(name, (name or "…", *rest))


def _need(program: Program, why: str) -> Need:
    name, words = program.name or "", program.words
    kind: Kind = "host"
    if name in _NETWORK or (name == "git" and _GIT.get("".join(words[1:2]))):
        kind = "network"
    elif name in _CHANGE or name == "git":
        kind = "change"
    elif name in ("cp", "mv", "touch", "mkdir", "tee") and words[-1].startswith("/"):
        return Need("folder", os.path.dirname(words[-1]), why)  # noqa: PTH120
    return Need(kind, name, why)
