"""The floor: calls that are never run, whatever a person, a mode or a flag says.

Deleting /, a system folder, a home or the Hermes home; making or overwriting a file system on a disk; a fork bomb
(which the parser finds); signalling every process; switching the machine off; damaging the database of Hermes. A guess
is enough here: a call that may turn out to be one of these is one of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from hermes_agent.approvals.rules.paths import Places
from hermes_agent.approvals.shell.words import Word, names

_FORMATS = re.compile(r"mkfs(?:\..+)?|mke2fs|mkswap|mkntfs|mkdosfs|newfs(?:_.+)?|wipefs|blkdiscard")
_HALTS = names("shutdown reboot halt poweroff killall5")
_SYSTEMCTL = names("poweroff reboot halt kexec soft-reboot rescue emergency")
_NARROWING = re.compile(
    r"-i?(?:name|path|wholename|regex|lname)|-newer.*|-[acm](?:time|min)|-size|-empty|-user|-group|-perm|-inum"
)
_DAMAGING = names("rm unlink shred truncate mv tee sqlite3 sqlite sed ed ex vi vim nano emacs gzip bzip2 xz split srm")
_INTO_LAST = names("cp install ln rsync scp")


def refusal(words: Sequence[Word], cwd: str | None, places: Places) -> str:
    """Why this call, its name without a folder, is never run; empty when it is above the floor."""
    if not words:
        return ""
    name, rest = words[0].text, words[1:]
    texts = [word.text for word in rest]
    if _FORMATS.fullmatch(name) and not _only_asks(texts):
        return "it makes a file system or wipes a disk"
    if (name in _HALTS and not _only_asks(texts)) or (
        name in ("init", "telinit") and texts[:1] in (["0"], ["6"], ["1"])
    ):
        return "it stops the machine"
    if name in ("systemctl", "loginctl") and _SYSTEMCTL & set(texts):
        return "it stops the machine"
    if name == "kill" and _signals_everybody(texts):
        return "it signals every process"
    if name in ("rm", "srm", "trash") and is_recursive(texts):
        ruin = _first(places.ruin(word, cwd) for word in operands(rest))
        if ruin:
            return ruin
    if name == "dd":
        return _first(places.unwritable(Word(text[3:]), cwd) for text in texts if text.startswith("of="))
    if name == "find":
        return _found(rest, cwd, places)
    if name == "mv" and len(rest) > 1:
        ruin = _first(places.ruin(word, cwd) for word in operands(rest)[:-1])
        if ruin:
            return ruin.replace("would delete", "would move away")
    if name in _INTO_LAST:
        targets = operands(rest)[-1:] + [Word(re.sub(r"^(?:-t|--target-directory=)", "", text)) for text in texts]
        return _first(places.unwritable(word, cwd) for word in targets if not word.text.startswith("-"))
    if name in _DAMAGING:
        return _first(places.unwritable(word, cwd) for word in operands(rest))
    return ""


def is_recursive(texts: Sequence[str]) -> bool:
    for text in texts:
        if text == "--":
            return False
        if "--recursive".startswith(text) and text > "--":
            return True
        if re.fullmatch(r"-[a-zA-Z]+", text) and "r" in text.lower():
            return True
    return False


def operands(words: Sequence[Word]) -> list[Word]:
    """Everything that is not an option; behind `--` everything."""
    found: list[Word] = []
    for at, word in enumerate(words):
        if word.text == "--":
            return found + list(words[at + 1 :])
        if not word.text.startswith("-"):
            found.append(word)
    return found


def roots_of_find(words: Sequence[Word]) -> list[Word]:
    """The places a `find` begins at; `words` without its name."""
    found: list[Word] = []
    for word in words:
        if word.text in ("-H", "-L", "-P"):
            continue
        if word.text.startswith(("-", "(", "!")):
            break
        found.append(word)
    return found or [Word(".")]


def _found(words: Sequence[Word], cwd: str | None, places: Places) -> str:
    """`find place … -delete` or `-exec rm`: with nothing to narrow it down it is a recursive delete."""
    texts = [word.text for word in words]
    runs = {texts[at + 1].rpartition("/")[2] for at, text in enumerate(texts[:-1]) if text.startswith(("-exec", "-ok"))}
    if "-delete" not in texts and not runs & {"rm", "unlink", "shred", "rmdir"}:
        return ""
    patterns = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text in ("-name", "-iname")]
    for root in roots_of_find(words):
        if not any(_NARROWING.fullmatch(text) for text in texts):
            ruin = places.ruin(root, cwd)
            if ruin:
                return ruin
        if places.path(root, cwd) == places.path(Word(places.home), "/") and any(
            fnmatchcase("state.db", pattern) for pattern in patterns
        ):
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


def _only_asks(texts: Sequence[str]) -> bool:
    return len(texts) == 1 and texts[0] in ("--help", "--version", "-V")


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")
