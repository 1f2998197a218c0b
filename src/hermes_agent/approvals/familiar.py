"""The commands we know: which only look, which work inside the workspace, which are dangerous, and by which option.

`doubt(call)` is the reason to ask about one simple command, or None when it is known to be harmless as it stands. The
tables name commands; the rules behind them name the options and arguments that turn a harmless command into another
(`sort -o`, `find -delete`, `sed 'e'`, `git -c`). A command in no table asks, and says that it is not known.

What a program of the project does when it is run — a test, a make target, `python script.py` — nobody can see on the
command line. Those run without a question when they lie inside the workspace, as work would be impossible otherwise;
`approvals.ask` takes them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from hermes_agent.approvals import looking, programs
from hermes_agent.approvals.calls import Call
from hermes_agent.approvals.places import Places
from hermes_agent.approvals.words import UNKNOWN, Word
from hermes_agent.approvals.wrappers import name_of

WRITING = frozenset({"mkdir", "touch", "tee", "mv", "ln", "rmdir", "cp", "mktemp"})

_DANGEROUS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("rm", "unlink", "shred", "srm", "truncate"), "deletes what cannot be brought back"),
        **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr"), "changes who may do what"),
        **dict.fromkeys(("kill", "pkill", "killall", "xkill"), "ends other programs"),
        **dict.fromkeys(("systemctl", "service", "launchctl", "initctl", "rc-service"), "starts or stops services"),
        **dict.fromkeys(
            ("curl", "wget", "nc", "ncat", "telnet", "ftp", "scp", "sftp", "rsync", "socat"), "reaches the network"
        ),
        **dict.fromkeys(
            ("docker", "podman", "kubectl", "helm", "terraform", "nsenter", "unshare"), "reaches out of the workspace"
        ),
        **dict.fromkeys(("dd", "fdisk", "parted", "sfdisk", "mount", "umount", "losetup"), "works on disks"),
        **dict.fromkeys(("psql", "mysql", "mariadb", "sqlite3", "mongosh", "redis-cli"), "may change a database"),
        **dict.fromkeys(("crontab", "at", "batch"), "changes what runs later"),
        **dict.fromkeys(
            ("source", ".", "let", "shopt", "enable", "hash", "bind", "complete"), "changes the shell itself"
        ),
        **dict.fromkeys(
            ("python", "python3", "perl", "ruby", "node", "php", "lua", "osascript"), "runs code that is not judged"
        ),
        **dict.fromkeys(
            ("apt", "apt-get", "dnf", "yum", "brew", "pip", "pip3", "npm", "gem"), "installs or removes software"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Doubt:
    why: str
    unfamiliar: bool = False


def doubt(call: Call, places: Places) -> Doubt | None:
    if not call.words:
        return None
    if not call.words[0].sure or call.words[0].glob:
        return Doubt("which command it runs is known only to the running shell")
    name = name_of(call.words[0])
    rule = _RULES.get(name)
    if rule is not None:
        why = rule(call, places)
    elif name in looking.LOOKING:
        why = looking.trouble(call, places)
    elif name in WRITING:
        why = _writes(call, places)
    elif name in _DANGEROUS:
        why = f"{name} {_DANGEROUS[name]}"
    else:
        return Doubt(f"{name[:60]} is not a command known to be harmless", unfamiliar=True)
    why = why or looking.secrets(call, places)
    return Doubt(why) if why else None


def _writes(call: Call, places: Places) -> str:
    name = name_of(call.words[0])
    targets = [word for word in call.words[1:] if word.text == "-" or not word.text.startswith("-")]
    targets += [
        Word(word.text.partition("=")[2], word.sure)
        for word in call.words[1:]
        if word.text.startswith("--") and "=" in word.text
    ]
    if name == "mktemp":
        return "" if len(call.words) == 1 else "mktemp is told where"
    if name == "cp" and not any(re.match(r"-\w*[tsl]|--[tsl]", word.text) for word in call.words[1:]):
        targets = targets[-1:]  # what is copied from is only read, unless links to it are made
    for word in targets:
        found = places.writing(word, call.scope.places())
        if found is not None:
            return found.why
    return ""


def _sudo_like(call: Call, places: Places) -> str:
    return "is used in a way that is not understood"


def _chmod(call: Call, places: Places) -> str:
    """Making one file of the workspace executable is daily work; the rest asks."""
    words = call.words[1:]
    if (
        len(words) < 2
        or not words[0].sure
        or not re.fullmatch(r"(?:[ugoa]*[+-][rx]+)|[64][64][40]|7[50][50]", words[0].text)
    ):
        return "chmod changes who may do what"
    return next((found.why for word in words[1:] if (found := places.writing(word, call.scope.places()))), "")


def _command(call: Call, places: Places) -> str:
    if len(call.words) > 1 and call.words[1].text in ("-v", "-V"):
        return ""
    return "command is used in a way that is not understood"


def _find(call: Call, places: Places) -> str:
    for test, word in pairwise(call.words):
        if re.fullmatch(r"-i?(?:name|path|wholename)", test.text) and places.is_secret(word.text.lower()):
            return f"find looks for {word.text}, which may hold secrets"
    for word in call.words[1:]:
        if re.match(r"-(?:delete|fprint|fls|ok)", word.text):
            return f"find is told to {word.text}"
        if word.text.startswith(UNKNOWN):
            return "find may be given a test nobody has seen"
    return ""


Rule = Callable[[Call, Places], str]
_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **programs.RULES,
        **dict.fromkeys(
            ("sudo", "doas", "su", "env", "xargs", "timeout", "nice", "nohup", "eval", "exec", "time"), _sudo_like
        ),
        "chmod": _chmod,
        "command": _command,
        "find": _find,
    }
)
