"""Judges a call: run it, ask a person, or never run it.

The judge only decides whether to ask; protection comes from the sandbox. It examines every simple command of a line
behind its wrappers (`env`, `timeout`, `xargs`, `sh -c` …). A call asks if it *visibly* needs to leave the sandbox or
removes something irreversibly; the floor refuses. A line that is not understood runs confined; `Judgement.programs` and
`understood` inform the rules of `approvals.deny`, which refuse what they cannot see.

Limits: it sees the line, not what a program does: `python script.py` and `make` run confined whatever is in them.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hermes_agent.approvals.rules import commands, floor
from hermes_agent.approvals.rules.paths import Places
from hermes_agent.approvals.shell.parser import Enough, Scope, ShellCall, WorkBudget, read
from hermes_agent.approvals.shell.words import NOT_KNOWN, UNKNOWN, Word, names
from hermes_agent.approvals.types import UNSURE, Judgement, Need, Program
from hermes_config import protected_files

_SECONDS, _NESTED = 0.25, 10
_SYSTEM_FOLDERS = re.compile(r"(?:/usr|/usr/local|/opt/homebrew|/opt/local|/snap)?/s?bin")
_SHELLS = names("sh bash dash zsh ksh ash fish rbash mksh")
_SETTERS = names("read mapfile readarray getopts printf wait let test [ unset")
_OF_UNKNOWN_TEXT = Program(None, (UNSURE,))


def judge(
    command: str, *, workdir: str, workspace: str, home: str, user_home: str | None = None, seconds: float = _SECONDS
) -> Judgement:
    """Judge a command line for `workdir`. Nothing is run; safe to call from any thread.

    `home` is the Hermes home, `user_home` the person's (the process's own by default). After `seconds` of
    work the rest of the line is not read any more.
    """
    case = _Case(Places(workspace, home, user_home or str(Path.home())), WorkBudget(seconds))
    known = {"HOME": case.places.user_home, "HERMES_HOME": case.places.home, "TMPDIR": "/tmp"}
    try:
        case.read(command, Scope(os.path.normpath(workdir), {name: Word(text) for name, text in known.items()}))
    except (Enough, RecursionError):
        case.work.doubt()
    needs, programs = tuple(case.needs), tuple(case.programs)
    if case.refusals:
        return Judgement("never", case.refusals[0], needs, programs, case.work.understood)
    why = "; ".join(need.why for need in needs[:3])
    return Judgement("ask" if needs else "run", why, needs, programs, case.work.understood)


def judge_action(
    kind: str, text: str, *, workdir: str, workspace: str, home: str, user_home: str | None = None
) -> Judgement:
    """Judge a command by its syntax and a file by its path; any other call asks."""
    if kind == "command":
        return judge(text, workdir=workdir, workspace=workspace, home=home, user_home=user_home)
    if kind != "write":
        secret = f"reads {text}, a place that may hold secrets"
        why = secret if kind == "read" else f"a call of the kind {kind[:40]} always asks"
        return Judgement("ask", why, (Need("host", text, why),))
    # File tools write in this process, without a sandbox and without private temporary folders.
    places, word = Places(workspace, home, user_home or str(Path.home())), Word(text)
    path = places.path(word, workdir) or text
    refusal = places.unwritable(word, workdir) or (f"{path} says what Hermes may do" if places.is_control(path) else "")
    if refusal:
        return Judgement("never", refusal)
    folder, why = places.outside(word, workdir, temporary=False), f"{path} is outside the workspace"
    if folder is None and protected_files.is_protected(Path(path), Path(os.path.realpath(workspace))):
        folder, why = str(Path(path).parent), f"{path} is run or obeyed by other programs"
    return Judgement("run") if folder is None else Judgement("ask", why, (Need("folder", folder, why),))


class _Case:
    """The judgement of one command line, in progress."""

    def __init__(self, places: Places, work: WorkBudget) -> None:
        self.places, self.work = places, work
        self.nested = 0
        self.refusals: list[str] = []
        self.needs: dict[Need, None] = {}
        self.programs: dict[Program, None] = {}

    def read(self, text: str, scope: Scope) -> None:
        if self.nested >= _NESTED:
            raise Enough
        self.nested += 1
        read(text, scope, self.work, self.call, user_home=self.places.user_home)
        self.nested -= 1

    def text(self, words: Sequence[Word], scope: Scope, *, shell: str = "bash") -> None:
        """Judge text that a shell reads as a command line."""
        line = " ".join(word.text for word in words)
        if UNKNOWN in line or not all(word.sure for word in words):
            self.programs.setdefault(_OF_UNKNOWN_TEXT)
        # Other shells read these otherwise.
        self.work.doubt(shell not in ("bash", "rbash") and re.search(r"\$'|\[\[|[<>]\(|\{[^ ]", line))
        self.read(line.replace(UNKNOWN, " "), scope)

    def run(self, call: ShellCall, words: Sequence[Word], scope: Scope | None = None) -> None:
        """Judge another command that this one runs."""
        if self.nested >= _NESTED:
            raise Enough
        self.nested += 1
        self.named(replace(call, words=list(words), scope=scope or call.scope), functions=False)
        self.nested -= 1

    def call(self, call: ShellCall) -> None:
        """Judge one simple command: its redirections, the command itself, then the commands it runs."""
        for word in (*call.reads, *call.writes):
            socket = re.match(r"/dev/(tcp|udp)/(?!localhost/|127\.)", word.text)
            if socket:
                self.needs.setdefault(Need("network", f"/dev/{socket[1]}", "it reaches the network"))
        for word in call.writes:
            self.writes(word, call, "it")
        self.named(call)

    def writes(self, word: Word, call: ShellCall, who: str) -> None:
        refusal, folder = (look(word, call.scope.cwd) for look in (self.places.unwritable, self.places.outside))
        if refusal:
            self.refusals.append(refusal)
        elif folder and not call.guess and not word.text.startswith(("/dev/tcp/", "/dev/udp/")):
            self.needs.setdefault(Need("folder", folder, f"{who} writes to {folder}, outside the workspace"))

    def named(self, call: ShellCall, *, functions: bool = True) -> None:
        """Judge a call by its name: the floor first, then the program's needs, then the commands it runs."""
        self.work.step(5)
        if not call.words:
            return
        first, scope = call.words[0], call.scope
        folder, _, base = first.text.rpartition("/")
        name = base if _SYSTEM_FOLDERS.fullmatch(folder) else first.text
        words = [Word(name, first.sure), *call.words[1:]]
        refusal = floor.refusal([word for word in words if word.text != UNKNOWN], scope.cwd, self.places)
        if refusal:
            self.refusals.append(refusal)
        words = self.without_global_options(name, words)
        for target in commands.written(name, [word for word in words[1:] if word.text], self.places):
            self.writes(target, call, name)
        if call.guess:
            return
        if functions and name in scope.functions and first.sure:
            reader, node = scope.functions[name]
            if reader.run_function(node, name, call):
                self.refusals.append("it starts itself again without end")
        elif first.glob or UNKNOWN in name:
            self.programs.setdefault(Program(None, _shown(words)))
        else:
            own = name.rpartition("/")[2] or name
            self.programs.setdefault(Program(own if first.sure else None, (own, *_shown(words)[1:])))
            self.needs |= dict.fromkeys(commands.needs(name, words, scope.cwd, self.places))
            self.builtin(name, call)
            self.look_inside(name, words[1:], call)

    def without_global_options(self, name: str, words: list[Word]) -> list[Word]:
        """Remove global options: `git -C x --no-pager push` → `git push`; an alias on the line is judged."""
        valued, rest = commands.GLOBAL_OPTIONS.get(name), words[1:]
        while valued is not None and rest and re.match(r"-(?!-help$|-version$)", rest[0].text):
            option = rest.pop(0)
            if not option.sure:
                return [words[0], NOT_KNOWN, *rest]
            if option.text in valued and rest:
                option = rest.pop(0)
            alias = re.match(r"(?:--config-env=)?alias\.[^=]*=(!?)(.*)", option.text, re.DOTALL)
            if alias and name == "git":
                self.read(alias[2] if alias[1] else f"git {alias[2]}", Scope(None))
                self.work.doubt()
        return [words[0], *rest]

    def builtin(self, name: str, call: ShellCall) -> None:
        """Apply a builtin's effect on the rest of the line."""
        scope, rest = call.scope, call.words[1:]
        if name == "cd":  # assumed to succeed
            where = next((word for word in rest if word.text not in names("-P -L -e --")), Word(self.places.user_home))
            known = UNKNOWN not in where.text and not where.glob and where.text != "-"
            path = posixpath.join(scope.cwd or "", where.text)
            scope.cwd = path if known and path.startswith("/") else None
        elif name in ("pushd", "popd"):
            scope.cwd = None
        elif name in ("source", "."):
            scope.variables = {key: Word(value.text, sure=False) for key, value in scope.variables.items()}
        elif name in ("enable", "hash", "set", "shopt"):
            self.work.doubt(name in ("enable", "hash") or any(re.match(r"[-+]\w*H|hist", word.text) for word in rest))
        elif name in _SETTERS:
            takes_name = name not in ("printf", "test", "[", "wait") or any(word.text in ("-v", "-p") for word in rest)
            self.work.doubt(any(re.search(r"\$\(|`", word.text.partition("[")[2]) for word in rest))
            self.work.doubt(takes_name and any(UNKNOWN in word.text for word in rest))
            for word in rest if name not in ("test", "[") else ():
                scope.assign(word.text, NOT_KNOWN)

    def look_inside(self, name: str, rest: list[Word], call: ShellCall) -> None:
        """Judge the command that a wrapper runs, or text that it reads as a command line."""
        scope, texts = call.scope, [word.text for word in rest]
        match name:
            case "eval":
                self.text(rest, scope)
            case "env":
                self.env(rest, call)
            case "find":
                self.find(rest, call)
            case "xargs":
                self.xargs(rest, call)
            case "trap":
                self.text(rest[:1] if len(rest) > 1 else [], scope.fork(maybe=True))
            case "alias":  # whether it holds for the rest of the line depends on the shell
                self.work.doubt(rest)
                for word in rest:
                    self.text([replace(word, text=word.text.partition("=")[2])], scope.fork(maybe=True))
            case "watch":
                self.text(_behind(rest, "n"), scope.fork())
            case "parallel":
                inner = _behind(rest, "jnNPLI")
                end = next((at for at, word in enumerate(inner) if word.text.startswith(":::")), len(inner))
                self.text(inner[:end], scope.fork())
            case "jobs" if "-x" in texts:
                self.run(call, rest[texts.index("-x") + 1 :])
            case _ if name in _SHELLS:
                self.shell(name, rest, call)
            case _ if commands.TEXT_BEHIND.get(name) in texts:
                self.text(rest[texts.index(commands.TEXT_BEHIND[name]) + 1 :][:1], scope.fork())
            case _ if re.fullmatch(r"python[\d.]*", name) and "-m" in texts[:3]:
                self.run(call, rest[texts.index("-m") + 1 :])
            case _ if " ".join((name, *texts[:1])) in commands.RUNNERS:
                self.run(call, _behind(rest[1:], "pC"))
            case _ if name in commands.WRAPPERS and not (name == "command" and texts[:1] in (["-v"], ["-V"])):
                self.run(call, _behind(rest, commands.WRAPPERS[name])[name in commands.OPERAND_FIRST :])

    def shell(self, name: str, rest: list[Word], call: ShellCall) -> None:
        """Judge `sh -c text`, and a shell that reads standard input. A script counts as an ordinary program."""
        reads_text = False
        while rest and re.match(r"[-+]\w|--\w", rest[0].text):
            option = rest.pop(0).text
            reads_text |= not option.startswith("--") and "c" in option
            if (re.fullmatch(r"[-+]\w*[oO]", option) or option in ("--rcfile", "--init-file")) and rest:
                del rest[0]
        scope = Scope(call.scope.cwd, {key: call.scope.value(key) for key in ("HOME", "HERMES_HOME", "TMPDIR")})
        scope.functions = call.scope.functions
        if reads_text:
            self.text(rest[:1] or [NOT_KNOWN], scope, shell=name)
        elif not rest or rest[0].text == "-":
            self.text([NOT_KNOWN if call.stdin is None else Word(call.stdin)], scope, shell=name)
        elif rest[0].text.startswith("/dev/fd/"):
            self.programs.setdefault(_OF_UNKNOWN_TEXT)

    def env(self, rest: list[Word], call: ShellCall) -> None:
        """Judge the command of `env [options] [A=b …] command` or `env -S 'one text'`."""
        while rest:
            word = rest.pop(0)
            split = re.fullmatch(r"(?:-[iv0]*S|--split-string=?)(.*)", word.text, re.DOTALL)
            if split:
                text = [Word(split[1], word.sure)] if split[1] else []
                return self.text([*text, *rest], call.scope.fork(), shell="env")
            if word.text in ("-u", "-C", "--unset", "--chdir"):
                rest = rest[1:]
            elif not re.match(r"-|[A-Za-z_]\w*=", word.text):
                return self.run(call, [word, *rest])
        return None

    def xargs(self, rest: list[Word], call: ShellCall) -> None:
        inner = _behind(rest, "adEILnPs")
        options = " ".join(word.text for word in rest[: len(rest) - len(inner)])
        marks = ("{}", *re.findall(r"(?:-I ?|-i|--replace=)(\S+)", options))
        inner = [_filled(word, marks) for word in inner or [Word("echo")]]
        self.run(replace(call, stdin=None), [*inner, NOT_KNOWN])

    def find(self, rest: list[Word], call: ShellCall) -> None:
        """Judge the commands of -exec and similar options, which end at `;`, or at a `+` after `{}`."""
        self.work.doubt(any(not word.sure and word.text.startswith("-") for word in rest))
        while rest:
            if re.fullmatch(r"-(?:exec|ok)(?:dir)?", rest.pop(0).text):
                inner: list[Word] = []
                while rest and rest[0].text != ";" and not (rest[0].text == "+" and inner and inner[-1] == NOT_KNOWN):
                    inner.append(_filled(rest.pop(0), ("{}",)))
                self.run(replace(call, stdin=None), inner, Scope(None))


def _shown(words: Sequence[Word]) -> tuple[str, ...]:
    """The words for the rules; parts that only the running shell knows become wildcards."""
    return tuple(word.text if word.sure else UNSURE for word in words[:200]) + ((UNSURE,) if len(words) > 200 else ())


def _filled(word: Word, marks: Iterable[str]) -> Word:
    """A word whose placeholders will be replaced by unknown names."""
    text = word.text
    for mark in marks:
        text = text.replace(mark, UNKNOWN)
    return Word(text, sure=word.sure and text == word.text, glob=word.glob)


def _behind(words: Sequence[Word], valued: str) -> list[Word]:
    """The words after a wrapper's options and assignments."""
    rest = list(words)
    while rest and re.match(r"-.|[A-Za-z_]\w*=", rest[0].text):
        option = rest.pop(0).text
        if option == "--":
            break
        last = next((at for at, letter in enumerate(option[1:], start=2) if letter in valued), 0)
        takes = option in commands.VALUED if option.startswith("--") else option[0] == "-" and last == len(option)
        rest = rest[1:] if takes else rest
    return rest
