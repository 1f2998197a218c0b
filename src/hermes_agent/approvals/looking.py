"""Commands that only look — and the options, operands and places by which even they do more.

`trouble(call)` says why such a command is not harmless as it stands; `secrets(call)` whether any command is pointed at
something the model should not be shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hermes_agent.approvals.calls import Call
from hermes_agent.approvals.places import Places
from hermes_agent.approvals.words import UNKNOWN, Word, names
from hermes_agent.approvals.wrappers import name_of

LOOKING = names(
    """ls dir vdir pwd cat tac nl head tail wc stat file du df whoami id groups uname arch nproc hostname uptime free
    which type whereis whatis diff cmp comm colordiff ps pgrep pidof tree grep egrep fgrep zgrep rg ag ack sort uniq cut
    tr rev fold fmt pr column paste join expand unexpand od xxd hexdump strings md5sum sha1sum sha224sum sha256sum
    sha384sum sha512sum b2sum cksum sum basename dirname realpath readlink echo printf true false : test [ seq sleep
    expr jq base64 base32 cal date locale tty getconf lscpu lsblk zcat bzcat xzcat factor yes tsort shuf numfmt
    cd exit return break continue shift wait read jobs umask getopts times printenv set man pushd popd"""
)
# Options that make a looking command do something else: letters of a cluster, and long names.
_TURNING: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "base64": ("o", ("output",)),
        "sort": ("oT", ("output", "compress-program", "temporary-directory", "files0-from")),
        "date": ("s", ("set",)),
        "tree": ("o", ()),
        "xxd": ("r", ("revert",)),
        "rg": ("", ("pre", "hostname-bin")),
        "ag": ("", ("pager",)),
        "ack": ("", ("pager",)),
        "hostname": ("bF", ("file", "boot")),
        "shuf": ("o", ("output",)),
        "file": ("C", ("compile",)),
        "man": ("PHC", ("pager", "html", "config-file")),
        "set": ("k", ()),
    }
)
_NAMES_ONLY = names("ls dir vdir stat du df file find tree which type basename dirname realpath readlink")
_TEXT_FIRST = names("grep egrep fgrep zgrep rg ag ack sed awk gawk mawk jq")
_TEXT_ONLY = names("echo printf test [ git expr")
_RUN_AGAIN = re.compile(r"\$\(|`")


def trouble(call: Call, places: Places) -> str:
    """Why a looking command does more than look; empty when it does not."""
    name, rest = name_of(call.words[0]), call.words[1:]
    letters, long = _TURNING.get(name, ("", ()))
    option = _option(rest, letters, long) if letters or long else ""
    if option:
        return f"{name} {option}"
    operands = [word for word in rest if not word.text.startswith("-")]
    if name == "printf" and rest and (rest[0].text.startswith("-v") or rest[0].text[:1] == UNKNOWN):
        return "printf sets a variable"
    if name in ("uniq", "xxd") and len(operands) > 1:
        found = places.writing(operands[-1], call.scope.places())
        return found.why if found else ""
    if name in ("printenv", "set") and not rest:
        return f"{name} shows the whole environment"
    if (name == "ps" and any("e" in word.text for word in operands)) or (name == "ps" and _option(rest, "E", ())):
        return "ps may show the environment of other programs"
    if name == "hostname" and operands:
        return "hostname renames the machine"
    if name == "date" and any(not word.text.startswith("+") for word in operands) and not _told_what(rest):
        return "date may set the clock"
    if name in ("test", "[", "read", "printf", "getopts", "expr") and any(
        _RUN_AGAIN.search(word.text) for word in rest
    ):
        return f"{name} is given text that the shell may run"
    return ""


def _told_what(words: Sequence[Word]) -> bool:
    """`date -d yesterday`, `date -r file`: the operand belongs to the option."""
    return any(re.match(r"-[dr]$|--(?:date|reference)", word.text) for word in words)


def _option(words: Sequence[Word], letters: str, long: Sequence[str]) -> str:
    """Whether one of these options is among the words, or could be among those nobody knows yet."""
    for word in words:
        text = word.text
        if text == "--":
            return ""
        if text.startswith(UNKNOWN):
            return "may be given an option nobody has seen"
        if text.startswith("--") and any(name.startswith(text[2:].partition("=")[0]) for name in long if len(text) > 2):
            return f"has the option {text.partition('=')[0]}"
        if re.match(r"-[^-]", text) and (set(text[1:]) & set(letters) or UNKNOWN in text):
            return f"has the option {text.replace(UNKNOWN, '…')[:20]}"
    return ""


def secrets(call: Call, places: Places) -> str:
    """A word that names a secret, wherever it stands. A text or a pattern counts only if it looks like a path."""
    name, folders = name_of(call.words[0]), call.scope.places()
    if name in _NAMES_ONLY:
        return ""
    recursive = name in ("grep", "egrep", "zgrep", "cp") and any(
        re.match(r"-\w*[rRa]|--(?:dereference-r|r)", word.text) for word in call.words[1:]
    )
    text_next = name in _TEXT_FIRST
    for word in call.words[1:]:
        text = word.text.partition("=")[2] if re.match(r"--?[\w-]+=", word.text) else word.text
        if not text or text.startswith("-"):
            continue
        only_text = name in _TEXT_ONLY or text_next
        text_next = False
        if only_text and ("/" not in text or " " in text):
            continue
        path = Word(text, word.sure, word.glob)
        found = places.reading(path, folders, deep=recursive or name in ("rg", "ag", "ack"))
        if found is not None:
            return found.why
    return ""
