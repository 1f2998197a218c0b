"""What a command line would do: harmless, ask, or never.

The line is parsed with tree-sitter's bash grammar (`reader`), its words are resolved as far as they are certain
(`words`), wrappers are looked through (`wrappers`), and every simple command in it is held against the floor
(`floor`) and against what we know of commands (`familiar`, `programs`). The worst of it is the judgement.

The choice, for daily use: commands known to only look, and commands known to work inside the workspace, run without
a question; known dangers ask; **everything else asks too** — an unknown command, a word only the running shell knows
in the place of a command, a write outside the workspace, syntax that was not understood. A person is asked once for an
exact command and may answer for the session or for always, so the unknown commands of a project cost one question
each. Asking about everything would teach people to say yes; allowing the unknown would make the list of dangers the
only fence, and such a list is never complete.

Limits: the judge sees the command line, not what a program does when it runs. `python script.py`, a make target or a
test of the workspace run unasked, and so does whatever the model wrote into them; `approvals.ask` takes them back.
What a substitution prints is unknown: as the argument of a command that only looks, it is let through.
"""

from __future__ import annotations

import os.path
import re
import unicodedata
from pathlib import Path

from hermes_agent.approvals import familiar, wrappers
from hermes_agent.approvals.base import Judgement
from hermes_agent.approvals.calls import Call, Reading
from hermes_agent.approvals.floor import floor, hidden
from hermes_agent.approvals.places import Places
from hermes_agent.approvals.reader import read
from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.words import UNKNOWN, Value, Word

_CHARS = 131_072  # more than that no shell is given as one argument
_NESTED = 8
TOO_MUCH = "it is too long or too deeply nested to be judged, so nobody can say that it is not"
_SAFE_NAMES = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|COLUMNS|LINES|TERM|CI|DEBUG|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
)
_MEANINGFUL = re.compile(
    r"PATH|IFS|HOME|SHELL|ENV|CDPATH|GLOBIGNORE|EDITOR|VISUAL|PAGER|BROWSER|PROMPT_COMMAND|TMPDIR|PS[0-4]|LD_.*|DYLD_.*|BASH.*"
    r"|SHELLOPTS|GIT_.*|HERMES_.*|PYTHON.*|NODE_.*|NPM_.*|PERL.*|RUBY.*|JAVA_.*|JDK_.*|LESS.*|MAN.*|SSH_.*|PYTEST.*|GREP_.*"
    r"|MAKE.*|.*FLAGS|.*OPTIONS|.*OPTS|.*PATH|.*_PROXY|CC|CXX|AR|LD|RUSTC.*|CARGO.*|GO.*|SUDO.*|XDG_.*"
)


def judge(
    command: str, *, workdir: str, home: str, user_home: str | None = None, workspace: str | None = None
) -> Judgement:
    """What a command would do if it were run in `workdir`. No command is run.

    `home` is the Hermes home, `user_home` the person's (the process's own by default). `workspace` is where it may work
    unasked: `workdir` itself by default, but a command that is sent elsewhere does not take its workspace along.
    """
    case = _Case(_places(workspace or workdir, home, user_home))
    shown = _not_shown(command)
    if shown:
        case.ask(shown)
    if len(command) > _CHARS:
        case.refusals.append(f"it is longer than {_CHARS:,} characters")
        return case.judgement()
    try:
        case.line(command, case.start(os.path.normpath(workdir)), stdin=None)
    except RecursionError:
        case.refusals.append(TOO_MUCH)
    return case.judgement()


def judge_action(
    kind: str, text: str, *, workdir: str, home: str, user_home: str | None = None, workspace: str | None = None
) -> Judgement:
    """A command by its syntax, a file by where it lies; what is neither always asks."""
    if kind == "command":
        return judge(text, workdir=workdir, home=home, user_home=user_home, workspace=workspace)
    places = _places(workspace or workdir, home, user_home)
    if kind == "write":
        found = places.writing(Word(text), (workdir,))
        return Judgement(found.level, found.why, (text,)) if found else Judgement("harmless", "", (text,))
    if kind == "read":
        found = places.reading(Word(text), (workdir,))
        return Judgement("ask", found.why if found else "it asks to read what others may not see", (text,))
    return Judgement("ask", f"a call of the kind {kind[:40]} always asks", (text,))


def _places(workspace: str, home: str, user_home: str | None) -> Places:
    # Only written forms: links are followed by `Places`, so that both the name and what it leads to are judged.
    norm = os.path.normpath
    return Places(norm(workspace), norm(home), norm(user_home or str(Path.home())))


class _Case:
    """One command line before the judge."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.nested = 0
        self.calls: list[str] = []
        self.refusals: list[str] = []
        self.reasons: list[str] = []
        self.unfamiliar: list[str] = []

    def start(self, workdir: str) -> Scope:
        known = {"HOME": self.places.user_home, "HERMES_HOME": self.places.home}
        return Scope(workdir, variables={name: Value(text) for name, text in known.items()})

    def ask(self, why: str) -> None:
        if why not in self.reasons:
            self.reasons.append(why)

    def judgement(self) -> Judgement:
        calls = tuple(dict.fromkeys(call for call in self.calls if call))
        if self.refusals:
            return Judgement("never", self.refusals[0], calls)
        reasons = [*self.reasons, *self.unfamiliar]
        if reasons:
            return Judgement("ask", "; ".join(reasons[:3]), calls, unfamiliar=not self.reasons)
        return Judgement("harmless", "", calls)

    def line(self, text: str, scope: Scope, *, stdin: str | None) -> None:
        if self.nested >= _NESTED:
            self.refusals.append(TOO_MUCH)
            return
        self.nested += 1
        found = read(text, scope, user_home=self.places.user_home, stdin=stdin)
        self.troubles(found)
        for call in found.calls:
            self.call(call)
        self.nested -= 1

    def troubles(self, found: Reading) -> None:
        for trouble in found.troubles:
            self.ask(trouble)
        if found.bombs:
            self.refusals.append("it starts itself again without end")
        if found.overflow:
            self.refusals.append(TOO_MUCH)
        for name, value, exported in found.assigned:
            if re.search(r"\$\(|`", value.text):
                self.ask(f"{name} is given text that the shell may run later")
            elif _MEANINGFUL.fullmatch(name.upper()) or (exported and not _SAFE_NAMES.fullmatch(name)):
                self.ask(f"{name} changes how other programs behave")

    def call(self, call: Call) -> None:
        self.calls.append(call.shown())
        refusal = floor(call, self.places)
        if refusal:
            self.refusals.append(refusal)
        for name, _ in call.assigned:
            if not _SAFE_NAMES.fullmatch(name):
                self.ask(f"{name} changes how {call.shown()[:40] or 'the line'} behaves")
        self.redirects(call)
        inside = wrappers.inside(call)
        if inside is not None:
            if inside.why:
                self.ask(f"{wrappers.name_of(call.words[0])} {inside.why}")
            for inner in inside.calls:
                self.call(inner)
            for text in inside.texts:
                self.line(text, call.scope.fork() if inside.same_shell else call.scope.child(), stdin=None)
            if not inside.also:
                return
        self.weigh(call)

    def weigh(self, call: Call) -> None:
        found = familiar.doubt(call, self.places)
        if found is None:
            return
        if found.unfamiliar:
            self.unfamiliar.append(found.why)
            refusal = hidden(call, self.places)
            if refusal:
                self.refusals.append(refusal)
            if call.words[0].text != UNKNOWN and not call.words[0].text.isascii():
                self.ask(f"{call.name[:40]} is written in letters that only look like a command")
        else:
            self.ask(found.why)

    def redirects(self, call: Call) -> None:
        folders = call.scope.places()
        for redirect in call.redirects:
            if redirect.operator.endswith("&") and redirect.target.sure and redirect.target.text.isdigit():
                continue
            look = self.places.reading if redirect.operator in ("<", "<&") else self.places.writing
            found = look(redirect.target, folders)
            if found is not None and found.level == "ask":
                self.ask(found.why)


def _not_shown(command: str) -> str:
    """Characters that hide what runs: invisible ones, ones that turn the line around, and look-alikes of ASCII."""
    for char in command:
        if char in "\n\t" or " " <= char <= "~":
            continue
        if unicodedata.category(char)[0] in "CZ":
            return f"it holds the invisible character U+{ord(char):04X}"
        plain = unicodedata.normalize("NFKC", char)
        if plain != char and plain.isascii():
            return f"it holds {char} (U+{ord(char):04X}), which only looks like {plain}"
    return ""
