"""What the demo model answers: a table of phrases, each with a small function, and a polite ending when none fits.

A reply is words, tool calls, a wait or a fault on demand. It is a pure function of the request.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hermes_agent.models import demo_arithmetic, demo_comments, demo_phrases, demo_summaries
from hermes_agent.models.demo import words as demo_words
from hermes_agent.models.demo_request import DemoRequest

_STORY_PACE = 0.4
"""A storyteller speaks more slowly."""
_LONGEST = 2_000
"""As much of a message as is looked at."""
_LONGEST_WAIT = 600.0
_MOST_STEPS = 200
_QUOTES = "\"'`“”„«»"


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure somebody asked to see."""

    how: str
    """A status, or disconnect | garbage | empty | overflow."""
    times: int | None = None
    """How many attempts fail; None: all of them."""


@dataclass(frozen=True, slots=True)
class DemoReply:
    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    wait: float = 0.0
    """Seconds before the first byte."""
    pace: float = 1.0
    """Of the usual speed; 0 is at once."""
    fault: Fault | None = None


def reply(request: DemoRequest) -> DemoReply:
    """The answer to a request."""
    aside = demo_summaries.asked_for(request)
    if aside == "summary":
        return DemoReply(demo_summaries.summary(request), pace=0)  # nobody reads along
    if aside == "title":
        return DemoReply(demo_summaries.title(request), pace=0)
    if request.results:
        return _after_tools(request)
    return _to(request.last, request)


def _after_tools(request: DemoRequest) -> DemoReply:
    meant = demo_phrases.find(request.last.strip()[:_LONGEST])
    counting = meant[1] if meant and meant[0] == "steps" else None
    if counting and request.steps < _wanted(counting) and "terminal" in request.tools:
        return _next_step(counting, request)
    said = "\n\n".join(demo_comments.comment(result) for result in request.results)
    if counting:
        said = f"That was step {request.steps}. {said}"
    if not request.added:
        return DemoReply(said)
    then = _to(request.added, request)
    return replace(then, text=f"{said}\n\nYou added “{request.added}”. {then.text}")


def _to(text: str, request: DemoRequest) -> DemoReply:
    """The answer to something a person said. What a plug-in put behind it (a paragraph of its own) is not for us."""
    said = text.strip().split("\n\n")[0].strip()[:_LONGEST]
    if greeting := demo_phrases.greeting(said):
        return DemoReply(f"{greeting[0]} {greeting[1]}\n\n{demo_words.TRY}")
    if meant := demo_phrases.find(said):
        name, found = meant
        return _ANSWERS[name](found, request)
    expression = demo_arithmetic.find(said)
    if expression is not None:
        return _sum(expression)
    return DemoReply(demo_words.LOST)


def _call(request: DemoRequest, lead: str, name: str, **arguments: Any) -> DemoReply:
    """A call of a tool that is offered, with the parameters it has; else words that say what is missing."""
    takes = request.tools.get(name)
    if takes is None:
        return DemoReply(f"I would use the tool `{name}` for that, but it is not offered to me here.")
    return DemoReply(lead, ((name, {key: value for key, value in arguments.items() if key in takes}),))


def _list(found: re.Match[str], request: DemoRequest) -> DemoReply:
    folder = (found.groupdict().get("what") or "").strip(_QUOTES)
    if folder.lower() in ("here", "this", "it"):
        folder = ""
    if "terminal" in request.tools:
        return _call(request, "I will look.", "terminal", command=f"ls -1p {_quoted(folder)}".strip())
    return _call(request, "I will look.", "search_files", pattern="*", target="files", path=folder or ".")


def _read(found: re.Match[str], request: DemoRequest) -> DemoReply:
    return _call(request, "I will read it.", "read_file", path=found["what"].strip(_QUOTES))


def _write(found: re.Match[str], request: DemoRequest) -> DemoReply:
    text = found["text"].strip(_QUOTES)
    return _call(request, "I will write it.", "write_file", path=found["what"].strip(_QUOTES), content=f"{text}\n")


def _look(found: re.Match[str], request: DemoRequest) -> DemoReply:
    words = found["what"].strip(_QUOTES)
    literal = re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", words)
    return _call(request, "I will look through the files.", "search_files", pattern=literal, target="content")


def _run(found: re.Match[str], request: DemoRequest) -> DemoReply:
    return _call(request, "As you wish.", "terminal", command=found["what"].strip("`"))


def _delete(found: re.Match[str], request: DemoRequest) -> DemoReply:
    name = found["what"].strip(_QUOTES + " ")
    is_file = bool(re.search(r"\b(?:file|datei|fichier|archivo)\b", found["kind"] or "", re.IGNORECASE))
    command = f"rm {'' if is_file else '-r '}{_quoted(name)}"
    return _call(request, "That cannot be undone, so I may have to ask you first.", "terminal", command=command)


def _quoted(name: str) -> str:
    if not name:
        return ""
    return f"{'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"


def _remember(found: re.Match[str], request: DemoRequest) -> DemoReply:
    fact = found["what"].strip(_QUOTES + " ").rstrip(".!")
    about_them = re.search(r"\b(?:i|i'm|my|me|mine|ich|mir|mein\w*|je|mon|ma|mes|mi|mis|yo)\b", fact, re.IGNORECASE)
    target = "user" if about_them else "memory"
    fact = fact[:1].upper() + fact[1:] + "."
    return _call(request, "I will note that.", "memory", action="add", target=target, content=fact)


def _forget(found: re.Match[str], request: DemoRequest) -> DemoReply:
    fact = found["what"].strip(_QUOTES + " ").rstrip(".!")
    return _call(request, "I will try to forget it.", "memory", action="remove", target="memory", old_text=fact)


def _search(found: re.Match[str], request: DemoRequest) -> DemoReply:
    query = found["what"].strip(_QUOTES + " ?!.")
    return _call(request, "I will search.", "session_search", query=query)


def _ask(found: re.Match[str], request: DemoRequest) -> DemoReply:
    return _call(
        request, "Gladly.", "clarify", question="Which do you want to see next?", choices=["the files here", "a story"]
    )


def _story(found: re.Match[str], request: DemoRequest) -> DemoReply:
    return DemoReply(demo_words.STORY, pace=_STORY_PACE)


def _about(found: re.Match[str], request: DemoRequest) -> DemoReply:
    return DemoReply(demo_words.ABOUT)


def _just_said(found: re.Match[str], request: DemoRequest) -> DemoReply:
    before = request.said[:-1]
    if not before:
        return DemoReply("Nothing yet: this is the first message of our conversation that I can see.")
    first = bool(re.search(r"first|beginning|start|zuerst|anfang", found[0], re.IGNORECASE))
    which = "The first thing you said was" if first else "You just said"
    return DemoReply(f"{which}: “{before[0 if first else -1].strip()}”")


def _slow(found: re.Match[str], request: DemoRequest) -> DemoReply:
    seconds = min(_LONGEST_WAIT, float(found["seconds"] or 3))
    rest = (found["what"] or "").strip()
    answer = _to(rest, request) if rest else DemoReply(f"That took {seconds:g} seconds, as you asked.")
    return replace(answer, wait=seconds)


def _fail(found: re.Match[str], request: DemoRequest) -> DemoReply:
    word = (found["before"] or found["after"] or "").lower()
    times = {"": None, "once": 1, "twice": 2}.get(word, 0)
    if times == 0:
        times = min(int(word.split()[0]), 100)
    how = found["what"].lower()
    how = "disconnect" if how.startswith(("disconn", "hang")) else how
    often = f"It failed {word} with {how}" if word else f"It was to fail with {how}"
    said = f"{often}, as you asked, and this attempt went through."
    return DemoReply(said, fault=Fault(how, times))


def _wanted(found: re.Match[str]) -> int:
    return min(int(found["what"]), _MOST_STEPS)


def _next_step(found: re.Match[str], request: DemoRequest) -> DemoReply:
    step = f"step {request.steps + 1} of {_wanted(found)}"
    return _call(request, "" if request.steps else "One after the other.", "terminal", command=f"echo {step}")


def _sum(expression: str) -> DemoReply:
    try:
        value = demo_arithmetic.evaluate(expression)
        return DemoReply(f"{expression.replace('**', '^')} = {value}")
    except demo_arithmetic.NoAnswer as why:
        return DemoReply(f"{str(why)[:1].upper()}{str(why)[1:]}.")


def _thanks(found: re.Match[str], request: DemoRequest) -> DemoReply:
    return DemoReply("You are welcome. (That line was scripted, too.)")


_ANSWERS: Mapping[str, Callable[[re.Match[str], DemoRequest], DemoReply]] = {
    "slow": _slow,
    "fail": _fail,
    "steps": _next_step,
    "about": _about,
    "just said": _just_said,
    "search": _search,
    "look": _look,
    "list": _list,
    "remember": _remember,
    "forget": _forget,
    "delete": _delete,
    "story": _story,
    "ask": _ask,
    "run": _run,
    "write": _write,
    "read": _read,
    "thanks": _thanks,
}
