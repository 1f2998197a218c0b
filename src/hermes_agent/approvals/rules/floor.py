"""The floor: calls that are never run, whatever a person, a mode or a flag says.

Deleting /, a system folder, a home or the Hermes home; making or overwriting a file system on a disk; a fork bomb
(which the parser finds); signalling every process; switching the machine off; damaging the database of Hermes. A call
that may turn out to be one of these counts as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise, takewhile

from hermes_agent.approvals.rules.paths import Places
from hermes_agent.approvals.shell.words import Word, names

_FORMATS = re.compile(r"mkfs(?:\..+)?|mke2fs|mkswap|mkntfs|mkdosfs|newfs(?:_.+)?|wipefs|blkdiscard")
_HALTS = names("shutdown reboot halt poweroff killall5")
_HALTING = names("poweroff reboot halt kexec soft-reboot rescue emergency")
_NARROWING = re.compile(
    r"-i?(?:name|path|wholename|regex|lname)|-newer.*|-[acm](?:time|min)|-size|-empty|-user|-group|-perm|-inum"
)


def refusal(words: Sequence[Word], cwd: str | None, places: Places) -> str:
    """Why this call is never run; empty if it may be. Its name is given without a folder."""
    if not words:
        return ""
    name, rest, plain = words[0].text, words[1:], operands(words[1:])
    texts = [word.text for word in rest]
    only_asks = texts in (["--help"], ["--version"], ["-V"])
    if _FORMATS.fullmatch(name) and not only_asks:
        return "it makes a file system or wipes a disk"
    halts = (name in _HALTS and not only_asks) or (name in ("init", "telinit") and texts[:1] in (["0"], ["6"], ["1"]))
    if halts or (name in ("systemctl", "loginctl") and _HALTING & set(texts)):
        return "it stops the machine"
    if name == "kill" and _signals_everybody(texts):
        return "it signals every process"
    if name == "find":
        return _found(rest, cwd, places)
    deleted = plain if name in ("rm", "srm") and is_recursive(texts) else plain[:-1] if name == "mv" else []
    return _first(places.ruin(word, cwd) for word in deleted)


def is_recursive(texts: Sequence[str]) -> bool:
    options = list(takewhile(lambda text: text != "--", texts))
    letters = [text.lower() for text in options if re.fullmatch(r"-[a-zA-Z]+", text)]
    return any("r" in text for text in letters) or any(
        "--recursive".startswith(text) for text in options if len(text) > 2
    )


def operands(words: Sequence[Word]) -> list[Word]:
    """The words that are not options; after `--` all words."""
    end = next((at for at, word in enumerate(words) if word.text == "--"), len(words))
    return [*(word for word in words[:end] if not word.text.startswith("-")), *words[end + 1 :]]


def roots_of_find(words: Sequence[Word]) -> list[Word]:
    """The starting paths of a `find`; `words` without its name."""
    plain = [word for word in words if word.text not in ("-H", "-L", "-P")]
    return list(takewhile(lambda word: not word.text.startswith(("-", "(", "!")), plain)) or [Word(".")]


def _found(words: Sequence[Word], cwd: str | None, places: Places) -> str:
    """Why a `find path … -delete` or `-exec rm` is never run: without filters it is a recursive delete."""
    texts = [word.text for word in words]
    runs = {value.rpartition("/")[2] for option, value in pairwise(texts) if option.startswith(("-exec", "-ok"))}
    if "-delete" not in texts and not runs & {"rm", "unlink", "shred", "rmdir"}:
        return ""
    database = any(fnmatchcase("state.db", value) for option, value in pairwise(texts) if option in ("-name", "-iname"))
    roots = roots_of_find(words)
    if database and any(places.path(root, cwd) == places.real_home for root in roots):
        return "it would delete the database of Hermes"
    narrow = any(_NARROWING.fullmatch(text) for text in texts)
    return "" if narrow else _first(places.ruin(root, cwd) for root in roots)


def _signals_everybody(texts: Sequence[str]) -> bool:
    signal = 2 if texts[:1] in (["-s"], ["-n"], ["--signal"]) else 1 if texts and re.match(r"-[^-]", texts[0]) else 0
    return list(texts) == ["-1"] or "-1" in texts[signal:]


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")
