"""Commands that run another command: what is inside, and whether the wrapper itself is a reason to ask.

`env`, `nice`, `timeout` and their like are looked through; `sudo`, `ssh`, `parallel` … are looked through and ask
whatever is inside. Text that a shell would read again (`sh -c`, `eval`, `env -S`, `trap`, `alias`) comes back as text.
A wrapper whose options are not understood is not looked through: it is an unknown command and asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hermes_agent.approvals.calls import Call
from hermes_agent.approvals.words import UNKNOWN, Value, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash", "mksh"})


@dataclass(frozen=True, slots=True)
class Inside:
    """What a wrapper runs."""

    calls: tuple[Call, ...] = ()
    texts: tuple[str, ...] = ()
    why: str = ""
    """The wrapper's own reason to ask; empty when only its content counts."""
    same_shell: bool = False
    """Its text is read by this very shell, variables and all."""
    also: bool = False
    """The wrapper is judged as a command beside what it runs."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a wrapper's own part of the line looks before the command begins."""

    flags: str = ""
    valued: str = ""
    long_flags: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operands: int = 0
    why: str = ""


_ROOT = "runs with another person's rights"
_SHAPES = {
    "nohup": _Shape(),
    "setsid": _Shape(flags="cfw", long_flags=("ctty", "fork", "wait")),
    "nice": _Shape(flags="0123456789", valued="n", long_valued=("adjustment",)),
    "ionice": _Shape(flags="t", valued="cn"),
    "timeout": _Shape(
        flags="v", valued="ks", long_flags=("foreground", "preserve-status", "verbose"),
        long_valued=("signal", "kill-after"), operands=1,
    ),
    "stdbuf": _Shape(valued="ioe", long_valued=("input", "output", "error")),
    "time": _Shape(flags="pv"),
    "command": _Shape(flags="p"),
    "builtin": _Shape(),
    "exec": _Shape(flags="cl", valued="a"),
    "unbuffer": _Shape(flags="p"),
    "caffeinate": _Shape(flags="dimsu", valued="tw"),
    "!": _Shape(),
    "coproc": _Shape(why="runs beside the rest of the line"),
    "sudo": _Shape(
        flags="AbEeHiKklnPSsVv", valued="CDgpRrtTUuh", long_valued=("user", "group", "chdir", "prompt", "host"),
        why=_ROOT,
    ),
    "doas": _Shape(flags="Lns", valued="aCu", why=_ROOT),
    "pkexec": _Shape(long_valued=("user",), why=_ROOT),
    "chroot": _Shape(long_valued=("userspec", "groups"), operands=1, why=_ROOT),
    "busybox": _Shape(why="runs a command in disguise"),
    "toybox": _Shape(why="runs a command in disguise"),
    "flock": _Shape(flags="ensuxo", valued="wE", operands=1, why="waits for a lock"),
    "strace": _Shape(flags="fqvtTyrcC", valued="eosPpu", why="traces another command"),
}  # fmt: skip
_XARGS = _Shape(
    flags="0rtpx", valued="adEeIiLlnPs", long_flags=("null", "no-run-if-empty", "verbose"),
    long_valued=("arg-file", "delimiter", "max-args", "max-procs", "max-lines", "replace"),
)  # fmt: skip
_SHELL_OPTION = re.compile(r"-[leuxsic]+o?|-o|--norc|--noprofile|--login|--posix")
_EXECUTING = ("-exec", "-execdir", "-ok", "-okdir")


def name_of(word: Word) -> str:
    """The command's name without its folder: `/bin/rm` is judged as rm, `./rm` and `/bin/../x/rm` are not."""
    folder, _, name = word.text.rpartition("/")
    return name if folder in ("/bin", "/usr/bin", "/sbin", "/usr/sbin") else word.text


def inside(call: Call) -> Inside | None:
    """What a call runs, or None when it is no wrapper or one that is not understood."""
    if not call.words:
        return None
    name = name_of(call.words[0])
    special = _SPECIAL.get("sh" if name in SHELLS else name)
    if special is not None:
        return special(call)
    shape = _SHAPES.get(name)
    return None if shape is None else _through(call, shape)


def _through(call: Call, shape: _Shape) -> Inside | None:
    rest = _after_options(call.words[1:], shape)
    if rest is None or len(rest) <= shape.operands:
        return None
    return Inside((replace(call, words=tuple(rest[shape.operands :])),), why=shape.why)


def _after_options(words: Sequence[Word], shape: _Shape) -> list[Word] | None:
    """What stands behind a wrapper's options; None when one of them is not understood."""
    rest = list(words)
    while rest and rest[0].text.startswith("-") and rest[0].text != "-":
        option = rest.pop(0)
        if not option.sure:
            return None
        if option.text == "--":
            return rest
        takes = _takes_value(option.text, shape)
        if takes is None:
            return None
        if takes:
            if not rest:
                return None
            rest.pop(0)
    return rest


def _takes_value(option: str, shape: _Shape) -> bool | None:
    """Whether the next word belongs to the option; None for an unknown option."""
    if option.startswith("--"):
        name, equals, _ = option[2:].partition("=")
        if name in shape.long_valued:
            return not equals
        return False if name in shape.long_flags else None
    for at, letter in enumerate(option[1:], start=2):
        if letter in shape.valued:
            return at == len(option)
        if letter not in shape.flags:
            return None
    return False


def _shell(call: Call) -> Inside | None:
    """`sh -c text`, and a shell that reads its standard input."""
    rest, reads_text = list(call.words[1:]), False
    while rest and rest[0].sure and _SHELL_OPTION.fullmatch(rest[0].text):
        option = rest.pop(0).text
        reads_text |= not option.startswith("--") and "c" in option
        if option.endswith("o") and rest:
            rest.pop(0)
    if reads_text:
        if not rest or UNKNOWN in rest[0].text:
            return Inside(why="runs text that only the running shell knows")
        return Inside(texts=(rest[0].text,), why="" if rest[0].sure else "runs text that is not certain")
    if rest:
        return Inside(why=f"runs the script {rest[0].text.replace(UNKNOWN, '…')}")
    if call.stdin is not None:
        return Inside(texts=(call.stdin,), why="runs what is fed to it")
    return Inside(why="runs whatever comes through the pipe" if call.piped else "runs whatever it is told")


def _eval(call: Call) -> Inside:
    text = " ".join(word.text for word in call.words[1:])
    if UNKNOWN in text or not all(word.sure for word in call.words):
        text, why = text.replace(UNKNOWN, " "), "runs text that only the running shell knows"
        return Inside(texts=(text,), why=why, same_shell=True)
    return Inside(texts=(text,), same_shell=True)


def _env(call: Call) -> Inside | None:
    """`env [options] [A=b …] command`, and `env -S 'one text'`."""
    rest, assigned = list(call.words[1:]), list(call.assigned)
    why = ""
    while rest:
        word = rest[0]
        split = re.fullmatch(r"(?:-[iv0]*S|--split-string=?)(.*)", word.text, re.DOTALL)
        if split:
            text = split[1] or (rest[1].text if len(rest) > 1 else "")
            tail = rest[1:] if split[1] else rest[2:]
            whole = " ".join([text, *(one.text for one in tail)])
            return Inside(texts=(whole.replace(UNKNOWN, " "),), why="splits a text into a command")
        if word.text in ("-i", "-", "--ignore-environment"):
            rest = rest[1:]
        elif word.text in ("-u", "-C", "--unset", "--chdir"):
            why = why or f"env {word.text} changes what the command sees"
            rest = rest[2:]
        elif re.match(r"[A-Za-z_]\w*=", word.text):
            name, _, value = word.text.partition("=")
            assigned.append((name, Value(value, word.sure)))
            rest = rest[1:]
        elif word.text == "--":
            rest = rest[1:]
        elif word.text.startswith("-") or not word.sure:
            return None
        else:
            return Inside((replace(call, words=tuple(rest), assigned=tuple(assigned)),), why=why)
    return Inside(why="shows the whole environment")


def _xargs(call: Call) -> Inside | None:
    rest = _after_options(call.words[1:], _XARGS)
    if rest is None:
        return None
    options = " ".join(word.text for word in call.words[1 : len(call.words) - len(rest)])
    marks = {"{}", *re.findall(r"(?:-I ?|-i|--replace=)(\S+)", options)}
    inner = tuple(_filled(word, marks) for word in rest) or (Word("echo"),)
    return Inside((replace(call, words=(*inner, Word(UNKNOWN, sure=False)), redirects=(), stdin=None),))


def _filled(word: Word, marks: Iterable[str]) -> Word:
    """A word whose marks will be replaced by names nobody knows yet."""
    text = word.text
    for mark in marks:
        text = text.replace(mark, UNKNOWN)
    return Word(text, sure=word.sure and text == word.text, glob=word.glob)


def _find(call: Call) -> Inside | None:
    """The commands of -exec and its kin; find itself is judged beside them."""
    calls: list[Call] = []
    words = list(call.words)
    while words:
        word = words.pop(0)
        if word.text not in _EXECUTING:
            continue
        inner: list[Word] = []
        while words and words[0].text not in (";", "+"):
            inner.append(_filled(words.pop(0), ("{}",)))
        scope = call.scope.fork()
        if word.text.endswith("dir"):  # it runs in the folder of whatever was found
            scope.cwd, scope.others = None, frozenset()
        calls.append(replace(call, words=tuple(inner), scope=scope, redirects=()))
    return Inside(tuple(calls), also=True) if calls else None


def _text_argument(*, why: str, flag: str = "") -> Callable[[Call], Inside]:
    """Wrappers that keep shell text for later (`trap`, `alias`) or hand it on (`su -c`, `ssh`)."""

    def read(call: Call) -> Inside:
        rest = [word.text.replace(UNKNOWN, " ") for word in call.words[1:]]
        if flag:
            rest = [rest[at + 1] for at, text in enumerate(rest[:-1]) if text == flag] or [
                text.partition("=")[2] for text in rest if text.startswith("--command=")
            ]
        else:
            rest = [re.sub(r"^\w+=", "", text) for text in rest if not text.startswith("-")]
        return Inside(texts=tuple(rest), why=why)

    return read


def _ssh(call: Call) -> Inside:
    """The words behind the host are one command line over there."""
    plain = [word.text.replace(UNKNOWN, " ") for word in call.words[1:] if not word.text.startswith("-")]
    return Inside(texts=(" ".join(plain[1:]),) if len(plain) > 1 else (), why="works on another machine")


def _as_text(why: str) -> Callable[[Call], Inside]:
    """Wrappers that hand their words to a shell as one text."""

    def read(call: Call) -> Inside:
        rest = [word.text.replace(UNKNOWN, " ") for word in call.words[1:]]
        while rest and re.match(r"-|\d", rest[0]):
            rest = rest[1:]
        return Inside(texts=(" ".join(rest),) if rest else (), why=why)

    return read


def _git(call: Call) -> Inside | None:
    """`-c alias.x='!text'` is shell text; everything else about git is judged as git."""
    texts = tuple(word.text.partition("=!")[2] for word in call.words if "=!" in word.text)
    return Inside(texts=texts, also=True) if texts else None


_SPECIAL: dict[str, Callable[[Call], Inside | None]] = {
    "sh": _shell,
    "eval": _eval,
    "env": _env,
    "xargs": _xargs,
    "find": _find,
    "trap": _text_argument(why="sets a trap"),
    "alias": _text_argument(why="gives a command another meaning"),
    "su": _text_argument(why=_ROOT, flag="-c"),
    "runuser": _text_argument(why=_ROOT, flag="-c"),
    "script": _text_argument(why="runs another command", flag="-c"),
    "ssh": _ssh,
    "watch": _as_text("runs again and again"),
    "parallel": _as_text("runs many commands"),
    "git": _git,
}
