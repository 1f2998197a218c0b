"""Whom to ask about a call: nobody, a person, or nobody because it is never done.

The judge decides whom to ask and proves nothing: the wall is the kernel's. Every simple command of a line is looked
at behind its wrappers (`env`, `timeout`, `xargs`, `sh -c` …). A call asks when it *visibly* needs to leave the wall or
removes what nothing brings back, and the floor refuses. What is not understood runs confined; `Judgement.programs`
and `understood` tell the rules of `approvals.deny`, which refuse what they cannot see.

Limits: it sees the line, not what a program does: `python script.py` and `make` run confined whatever is in them.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hermes_agent.approvals.judgement import UNSURE, Judgement, Need, Program
from hermes_agent.approvals.rules import commands, floor, paths
from hermes_agent.approvals.rules.paths import Places
from hermes_agent.approvals.shell.parser import Call, Enough, Scope, Work, read
from hermes_agent.approvals.shell.words import NOT_KNOWN, UNKNOWN, Word, names

_SECONDS = 0.25
_NESTED = 8
_SYSTEM_FOLDERS = re.compile(r"(?:/usr|/usr/local|/opt/homebrew|/opt/local|/snap)?/s?bin")
_SHELLS = names("sh bash dash zsh ksh ash fish rbash mksh")
_WRAPPERS = {
    "nohup": ("", 0), "setsid": ("", 0), "nice": ("n", 0), "ionice": ("cnpPu", 0), "timeout": ("ks", 1), "stdbuf": ("ioe", 0),
    "time": ("fo", 0), "command": ("", 0), "builtin": ("", 0), "exec": ("a", 0), "unbuffer": ("", 0), "coproc": ("", 0),
    "caffeinate": ("tw", 0), "chrt": ("TPD", 1), "taskset": ("", 1), "flock": ("wE", 1), "strace": ("abeEIoOpPsSuUX", 0),
    "ltrace": ("aADeFlnopsuwx", 0), "sudo": ("CDghpRrtTUu", 0), "doas": ("aCu", 0), "pkexec": ("", 0), "chroot": ("", 1),
    "busybox": ("", 0), "toybox": ("", 0), "unshare": ("SGRw", 0), "nsenter": ("tSG", 0), "systemd-run": ("pMHtu", 0),
    "xvfb-run": ("efnpsw", 0), "dbus-run-session": ("", 0), "valgrind": ("", 0), "catchsegv": ("", 0), "numactl": ("CmNpiS", 0),
    "prlimit": ("p", 0), "setarch": ("", 1), "linux64": ("", 0), "setpriv": ("", 0), "fakeroot": ("libs", 0), "eatmydata": ("", 0),
    "entr": ("", 0), "xargs": ("adEILnPs", 0),
}  # fmt: skip
"""Commands that run another: their options that take the next word, and how many operands stand before the command."""
_LONG_VALUED = names(
    "--signal --kill-after --adjustment --class --classdata --input --output --error --user --group --chdir --prompt "
    "--host --userspec --groups --arg-file --delimiter --max-args --max-procs --max-chars --process-slot-var --unset "
    "--timeout --conflict-exit-code --role --type --close-from --format --chroot --split-string --target --unit"
)
_RUNNERS = {("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"), ("bundle", "exec"), ("npm", "exec")}
_TEXT_BEHIND = {"su": "-c", "runuser": "-c", "script": "-c", "flock": "-c", "mapfile": "-C", "readarray": "-C"}
_SETTERS = names("read mapfile readarray getopts printf wait let test [ unset")


def judge(
    command: str, *, workdir: str, workspace: str, home: str, user_home: str | None = None, seconds: float = _SECONDS
) -> Judgement:
    """What a command line needs if it is run in `workdir`. Nothing is run; safe to call from any thread.

    `home` is the Hermes home, `user_home` the person's (the process's own by default). After `seconds` the rest of the
    line is not read any more.
    """
    case = _Case(_places(workspace, home, user_home), Work(seconds))
    known = {"HOME": case.places.user_home, "HERMES_HOME": case.places.home, "TMPDIR": "/tmp"}
    scope = Scope(os.path.normpath(workdir), {name: Word(text) for name, text in known.items()})
    try:
        case.read(command, scope)
    except (Enough, RecursionError):
        case.work.doubt()
    return case.judgement()


def judge_action(
    kind: str, text: str, *, workdir: str, workspace: str, home: str, user_home: str | None = None
) -> Judgement:
    """A command by its syntax, a file by where it lies; what is neither always asks."""
    if kind == "command":
        return judge(text, workdir=workdir, workspace=workspace, home=home, user_home=user_home)
    if kind == "write":
        return _judge_write(text, workdir, _places(workspace, home, user_home))
    if kind == "read":
        return _asking(Need("host", text, f"reads {text}, a place that may hold secrets"))
    return _asking(Need("host", text, f"a call of the kind {kind[:40]} always asks"))


def _judge_write(text: str, workdir: str, places: Places) -> Judgement:
    """File tools write in our own process: no wall and no private folder for temporary files stands around them."""
    word = Word(text)
    path = places.path(word, workdir) or text
    refusal = places.unwritable(word, workdir)
    if refusal or places.is_control(path):
        return Judgement("never", refusal or f"{path} says what Hermes may do")
    folder = places.outside(word, workdir, temporary=False)
    if folder is not None:
        return _asking(Need("folder", folder, f"{path} is outside the workspace"))
    if paths.is_protected(path, os.path.realpath(places.workspace)):
        return _asking(Need("folder", os.path.dirname(path), f"{path} is run or obeyed by other programs"))
    return Judgement("run")


def _asking(need: Need) -> Judgement:
    return Judgement("ask", need.why, (need,))


def _places(workspace: str, home: str, user_home: str | None) -> Places:
    norm = os.path.normpath
    return Places(norm(workspace), norm(home), norm(user_home or str(Path.home())))


class _Case:
    """One command line before the judge."""

    def __init__(self, places: Places, work: Work) -> None:
        self.places, self.work = places, work
        self.nested = 0
        self.refusals: list[str] = []
        self.needs: dict[Need, None] = {}
        self.programs: dict[Program, None] = {}

    def judgement(self) -> Judgement:
        needs, programs = tuple(self.needs), tuple(self.programs)
        if self.refusals:
            return Judgement("never", self.refusals[0], needs, programs, self.work.understood)
        why = "; ".join(need.why for need in needs[:3])
        return Judgement("ask" if needs else "run", why, needs, programs, self.work.understood)

    def read(self, text: str, scope: Scope, stdin: str | None = None) -> None:
        if self.nested >= _NESTED:
            raise Enough
        self.nested += 1
        read(text, scope, self.work, self.call, user_home=self.places.user_home, stdin=stdin)
        self.nested -= 1

    def need(self, need: Need) -> None:
        self.needs.setdefault(need)

    def call(self, call: Call) -> None:
        """One simple command: its redirections, then itself, then what it runs."""
        self.work.step()
        cwd, places = call.scope.cwd, self.places
        for word in call.writes:
            refusal = places.unwritable(word, cwd)
            if refusal:
                self.refusals.append(refusal)
            folder = places.outside(word, cwd)
            if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
                self.socket(word)
            elif folder is not None and not call.guess:
                self.need(Need("folder", folder, f"it writes to {folder}, outside the workspace"))
        for word in call.reads:
            self.socket(word)
        if call.words:
            self.named(call)

    def socket(self, word: Word) -> None:
        """The shell's own way to the network, `/dev/tcp/host/port`."""
        parts = word.text.split("/")
        if (
            parts[1:2] == ["dev"]
            and parts[2:3] in (["tcp"], ["udp"])
            and parts[3:4] not in (["localhost"], ["127.0.0.1"])
        ):
            self.need(Need("network", "/dev/" + parts[2], "it reaches the network"))

    def named(self, call: Call) -> None:
        """A call that has a name: the floor first, then wrappers, then what the program itself needs."""
        first = call.words[0]
        folder, _, base = first.text.rpartition("/")
        name = base if _SYSTEM_FOLDERS.fullmatch(folder) else first.text
        named = [Word(name, first.sure), *call.words[1:]]
        refusal = floor.refusal([word for word in named if word.text != UNKNOWN], call.scope.cwd, self.places)
        if refusal:
            self.refusals.append(refusal)
        if call.guess:
            return
        if name in call.scope.functions and first.sure:
            reader = call.scope.functions[name][0]
            if reader.run_function(name, call.words[1:], call.scope, call.stdin):
                self.refusals.append("it starts itself again without end")
            return
        if first.glob or UNKNOWN in name:
            self.programs.setdefault(Program(None, _shown(named)))
            return
        stripped = self.strip_global(name, named)
        self.programs.setdefault(Program(name if first.sure else None, _shown(stripped)))
        for need in commands.needs(name, stripped, call.scope.cwd, self.places):
            self.need(need)
        self.builtin(name, call)
        self.look_inside(name, stripped, call)

    def strip_global(self, name: str, words: Sequence[Word]) -> list[Word]:
        """`git -C x --no-pager push` → `git push`; an alias given on the line is read."""
        valued = commands.GLOBAL_OPTIONS.get(name)
        rest = list(words[1:])
        while valued is not None and rest and rest[0].text.startswith("-") and name != "make":
            option = rest.pop(0)
            if not option.sure:
                return [words[0], NOT_KNOWN, *rest]
            if option.text in valued and rest:
                option = rest.pop(0)
            alias = (
                re.match(r"(?:--config-env=)?alias\.[^=]*=(!?)(.*)", option.text, re.DOTALL) if name == "git" else None
            )
            if alias:
                self.read(alias[2] if alias[1] else f"git {alias[2]}", Scope(None))
                self.work.doubt()
        return [words[0], *rest]

    def run(self, call: Call, words: Sequence[Word], scope: Scope | None = None) -> None:
        """Another command that this one runs."""
        if self.nested >= _NESTED:
            raise Enough
        if words:
            self.nested += 1
            self.named(replace(call, words=tuple(words), scope=scope or call.scope))
            self.nested -= 1

    def text(self, words: Sequence[Word], scope: Scope, *, shell: str = "bash") -> None:
        """Text that a shell reads as a command line."""
        line = " ".join(word.text for word in words)
        if UNKNOWN in line or not all(word.sure for word in words):
            self.programs.setdefault(Program(None, (UNSURE,)))
        if shell not in ("bash", "rbash") and re.search(r"\$'|\[\[|[<>]\(|\{[^ ]", line):
            self.work.doubt()  # other shells read these otherwise
        self.read(line.replace(UNKNOWN, " "), scope)

    def builtin(self, name: str, call: Call) -> None:
        """What a builtin changes for the rest of the line."""
        scope, rest = call.scope, call.words[1:]
        if name == "cd":
            where = [word for word in rest if word.text not in ("-P", "-L", "-e", "--")]
            scope.enter(
                where[0] if where and where[0].text != "-" else NOT_KNOWN if where else Word(self.places.user_home)
            )
        elif name in ("pushd", "popd"):
            scope.cwd = None
        elif name in ("source", ".", "shopt", "enable", "hash") or (name == "set" and rest):
            scope.variables = {key: Word(value.text, sure=False) for key, value in scope.variables.items()}
            if name in ("enable", "hash") or any(re.match(r"[-+]\w*H|hist", word.text) for word in rest):
                self.work.doubt()
        elif name in _SETTERS:
            evaluated = [word for word in rest if re.search(r"\$\(|`", word.text.partition("[")[2])]
            names = name not in ("printf", "test", "[", "wait") or any(word.text in ("-v", "-p") for word in rest)
            if evaluated or (names and any(UNKNOWN in word.text for word in rest)):
                self.work.doubt()
            for word in rest if name not in ("test", "[") else ():
                scope.assign(word.text, NOT_KNOWN)

    def look_inside(self, name: str, words: Sequence[Word], call: Call) -> None:
        """The command a wrapper runs, and text that is read as a command line."""
        rest, scope = list(words[1:]), call.scope
        texts = [word.text for word in rest]
        special: dict[str, Callable[[], None]] = {
            "eval": lambda: self.text(rest, scope),
            "env": lambda: self.env(rest, call),
            "find": lambda: self.find(rest, call),
            "xargs": lambda: self.xargs(rest, call),
            "trap": lambda: self.text(rest[:1], scope.fork(maybe=True)) if len(rest) > 1 else None,
            "alias": lambda: self.alias(rest, scope),
            "watch": lambda: self.text(_behind(rest, "n"), scope.fork()),
            "parallel": lambda: self.text(_until(_behind(rest, "jnNPLI"), ":::"), scope.fork()),
        }
        if name in _SHELLS:
            self.shell(name, rest, call)
        elif name in special:
            special[name]()
        elif name in _TEXT_BEHIND and _TEXT_BEHIND[name] in texts:
            self.text(rest[texts.index(_TEXT_BEHIND[name]) + 1 :][:1], scope.fork())
        elif name == "jobs" and "-x" in texts:
            self.run(call, rest[texts.index("-x") + 1 :])
        elif re.fullmatch(r"python[\d.]*", name) and "-m" in texts[:3]:
            self.run(replace(call, stdin=None), rest[texts.index("-m") + 1 :])
        elif (name, *texts[:1]) in _RUNNERS:
            self.run(call, _behind(rest[1:], "pC"))
        elif name in _WRAPPERS and not (name == "command" and texts[:1] in (["-v"], ["-V"])):
            valued, count = _WRAPPERS[name]
            self.run(call, _behind(rest, valued)[count:])

    def shell(self, name: str, rest: list[Word], call: Call) -> None:
        """`sh -c text`, and a shell that reads its standard input. A script is run like any other program."""
        reads_text = False
        while rest and re.match(r"[-+]\w|--\w", rest[0].text):
            option = rest.pop(0).text
            reads_text |= not option.startswith("--") and "c" in option
            if (re.fullmatch(r"[-+]\w*[oO]", option) or option in ("--rcfile", "--init-file")) and rest:
                rest.pop(0)
        scope = Scope(call.scope.cwd, {key: call.scope.value(key) for key in ("HOME", "HERMES_HOME", "TMPDIR")})
        scope.functions = call.scope.functions
        if reads_text:
            self.text(rest[:1] or [NOT_KNOWN], scope, shell=name)
        elif not rest or rest[0].text == "-":
            self.text([Word(call.stdin) if call.stdin is not None else NOT_KNOWN], scope, shell=name)
        elif rest[0].text.startswith("/dev/fd/"):
            self.programs.setdefault(Program(None, (UNSURE,)))

    def env(self, rest: list[Word], call: Call) -> None:
        """`env [options] [A=b …] command`, and `env -S 'one text'`."""
        while rest:
            word = rest.pop(0)
            split = re.fullmatch(r"(?:-[iv0]*S|--split-string=?)(.*)", word.text, re.DOTALL)
            if split:
                tail = rest if split[1] else rest[1:]
                text = Word(split[1], word.sure) if split[1] else rest[0] if rest else NOT_KNOWN
                self.text([text, *tail], call.scope.fork(), shell="env")
                return
            if word.text in ("-u", "-C", "--unset", "--chdir"):
                rest = rest[1:]
            elif not re.match(r"-|[A-Za-z_]\w*=", word.text):
                self.run(call, [word, *rest])
                return

    def xargs(self, rest: list[Word], call: Call) -> None:
        inner = _behind(rest, _WRAPPERS["xargs"][0])
        options = " ".join(word.text for word in rest[: len(rest) - len(inner)])
        marks = ("{}", *re.findall(r"(?:-I ?|-i|--replace=)(\S+)", options))
        self.run(replace(call, stdin=None), [*(_filled(word, marks) for word in inner or [Word("echo")]), NOT_KNOWN])

    def find(self, rest: list[Word], call: Call) -> None:
        """The commands of -exec and its kin, which end at `;`, or at a `+` behind `{}`."""
        if any(not word.sure and word.text.startswith("-") for word in rest):
            self.work.doubt()
        while rest:
            if not re.fullmatch(r"-(?:exec|ok)(?:dir)?", rest.pop(0).text):
                continue
            inner: list[Word] = []
            while rest and rest[0].text != ";" and not (rest[0].text == "+" and inner and inner[-1].text == UNKNOWN):
                inner.append(_filled(rest.pop(0), ("{}",)))
            self.run(replace(call, stdin=None), inner, Scope(None))

    def alias(self, rest: Sequence[Word], scope: Scope) -> None:
        for word in rest:
            name, equals, text = word.text.partition("=")
            if equals:
                self.text([replace(word, text=text)], scope.fork(maybe=True))
                self.work.doubt()  # whether it holds for the rest of the line depends on the shell


def _shown(words: Sequence[Word]) -> tuple[str, ...]:
    """Words for the rules; what only the running shell knows may be any number of words."""
    return tuple(word.text if word.sure else UNSURE for word in words[:200]) + ((UNSURE,) if len(words) > 200 else ())


def _filled(word: Word, marks: Sequence[str]) -> Word:
    """A word whose marks will be replaced by names nobody knows yet."""
    text = word.text
    for mark in marks:
        text = text.replace(mark, UNKNOWN)
    return Word(text, sure=word.sure and text == word.text, glob=word.glob)


def _behind(words: Sequence[Word], valued: str) -> list[Word]:
    """What stands behind a wrapper's options and assignments."""
    rest = list(words)
    while rest and (re.match(r"-.|[A-Za-z_]\w*=", rest[0].text)):
        option = rest.pop(0).text
        if option == "--":
            break
        last = next((at for at, letter in enumerate(option[1:], start=2) if letter in valued), 0)
        takes = option in _LONG_VALUED if option.startswith("--") else option[0] == "-" and last == len(option)
        if takes and rest:
            rest.pop(0)
    return rest


def _until(words: Sequence[Word], end: str) -> list[Word]:
    at = next((at for at, word in enumerate(words) if word.text.startswith(end)), len(words))
    return list(words[:at])
