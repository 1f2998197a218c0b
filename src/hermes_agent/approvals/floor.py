"""The floor: calls that are never run, whatever a person, a mode or a flag says.

Deleting /, a system folder, a home or the Hermes home; making or overwriting a file system on a disk; a fork bomb;
signalling every process; switching the machine off; damaging the database of Hermes. A guess is enough here: a call
that may turn out to be one of these is one of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from hermes_agent.approvals.calls import Call
from hermes_agent.approvals.places import Places
from hermes_agent.approvals.words import UNKNOWN, Word, names
from hermes_agent.approvals.wrappers import name_of

_FORMATS = re.compile(r"mkfs(?:\..+)?|mke2fs|mkswap|mkntfs|mkdosfs|newfs(?:_.+)?|wipefs|blkdiscard")
_HALTS = frozenset({"shutdown", "reboot", "halt", "poweroff", "killall5"})
_SYSTEMCTL = frozenset({"poweroff", "reboot", "halt", "kexec", "soft-reboot", "rescue", "emergency"})
_NARROWING = re.compile(
    r"-i?(?:name|path|wholename|regex|lname)|-newer.*|-[acm](?:time|min)|-size|-empty|-user|-group|-perm|-inum"
)
_DAMAGING = names(
    "rm unlink shred truncate mv tee sqlite3 sqlite sed ed ex vi vim nano emacs chmod chown gzip bzip2 xz split srm"
)
_INTO_LAST = frozenset({"cp", "install", "ln", "rsync", "mv", "scp"})
_SUFFIXES = frozenset({"rm", "dd", "find"})


def floor(call: Call, places: Places) -> str:
    """Why this call is never run; empty when it is above the floor."""
    folders = call.scope.places()
    for redirect in call.redirects:
        if redirect.operator.startswith((">", "&>", "<>")) or redirect.operator == "":
            found = places.writing(redirect.target, folders)
            if found is not None and found.level == "never":
                return found.why
    words = (
        [word for word in call.words if word.text != UNKNOWN]
        if call.words and call.words[0].text == UNKNOWN
        else list(call.words)
    )
    return _of_words(words, folders, places) if words else ""


def hidden(call: Call, places: Places) -> str:
    """The same for a command that nobody knows: it may be a wrapper, so what follows in the line is looked at too."""
    for at, word in enumerate(call.words[1:], start=1):
        if name_of(word) in _SUFFIXES or _FORMATS.fullmatch(name_of(word)):
            found = _of_words(call.words[at:], call.scope.places(), places)
            if found:
                return found
    return ""


def _of_words(words: Sequence[Word], folders: tuple[str | None, ...], places: Places) -> str:
    name, rest = name_of(words[0]), list(words[1:])
    texts = [word.text for word in rest]
    if _FORMATS.fullmatch(name):
        return "it makes a file system or wipes a disk"
    if name in _HALTS or (name in ("init", "telinit") and texts[:1] in (["0"], ["6"], ["1"])):
        return "it stops the machine"
    if name in ("systemctl", "loginctl") and _SYSTEMCTL & set(texts):
        return "it stops the machine"
    if name == "kill" and _signals_everybody(texts):
        return "it signals every process there is"
    if name == "dd":
        rest = [Word(word.text[3:], word.sure, word.glob) for word in rest if word.text.startswith("of=")]
        return _written(rest, folders, places)
    if name == "rm" and _recursive(texts):
        return _first(places.ruin(word, folders) for word in _operands(rest))
    if name == "find":
        return _found(rest, folders, places)
    if name in ("chmod", "chown") and not any(places.is_memory(text) for text in texts):
        return ""
    if name == "mv" and len(rest) > 1:
        ruin = _first(places.ruin(word, folders) for word in _operands(rest)[:-1])
        if ruin:
            return ruin.replace("would delete", "would move away")
    if name in _INTO_LAST and name != "mv":
        rest = _operands(rest)[-1:] + [word for word in rest if word.text.startswith(("-t", "--target"))]
    elif name not in _DAMAGING:
        return ""
    return _written(_operands(rest), folders, places)


def _written(targets: Sequence[Word], folders: tuple[str | None, ...], places: Places) -> str:
    for word in targets:
        found = places.writing(word, folders)
        if found is not None and found.level == "never":
            return found.why
    return ""


def _recursive(texts: Sequence[str]) -> bool:
    for text in texts:
        if text == "--":
            return False
        if text.startswith("--r") and "--recursive".startswith(text):
            return True
        if re.fullmatch(r"-[a-zA-Z]*[rR][a-zA-Z]*", text):
            return True
    return False


def _operands(words: Sequence[Word]) -> list[Word]:
    """Everything that is not an option; behind `--` everything."""
    found: list[Word] = []
    for at, word in enumerate(words):
        if word.text == "--":
            return found + list(words[at + 1 :])
        if not word.text.startswith("-"):
            found.append(word)
    return found


def _found(words: Sequence[Word], folders: tuple[str | None, ...], places: Places) -> str:
    """`find place … -delete` or `-exec rm`: with nothing to narrow it down it is a recursive delete."""
    texts = [word.text for word in words]
    runs = {name_of(words[at + 1]) for at, text in enumerate(texts[:-1]) if text.startswith(("-exec", "-ok"))}
    if "-delete" not in texts and not runs & {"rm", "unlink", "shred", "rmdir"}:
        return ""
    roots: list[Word] = []
    for word in words:
        if word.text.startswith(("-", "(", "!")):
            break
        roots.append(word)
    patterns = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text in ("-name", "-iname")]
    for root in roots or [Word(".")]:
        if not any(_NARROWING.fullmatch(text) for text in texts):
            ruin = places.ruin(root, folders)
            if ruin:
                return ruin
        paths = places.paths(root, folders) or []
        if any(path == places.home for path in paths) and any(fnmatchcase("state.db", pattern) for pattern in patterns):
            return "it would delete the database of Hermes"
    return ""


def _signals_everybody(texts: Sequence[str]) -> bool:
    rest = list(texts)
    if rest == ["-1"]:
        return True
    if rest and rest[0] in ("-s", "-n", "--signal"):
        rest = rest[2:]
    elif rest and rest[0].startswith("-") and rest[0] != "--":
        rest = rest[1:]
    return "-1" in rest


def _first(reasons: object) -> str:
    return next((reason for reason in reasons if reason), "")  # type: ignore[attr-defined]
