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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hermes_agent.approvals import programs
from hermes_agent.approvals.places import Places
from hermes_agent.approvals.reader import Call
from hermes_agent.approvals.words import UNKNOWN, Word
from hermes_agent.approvals.wrappers import name_of

LOOKING = frozenset(
    """ls dir vdir pwd cat tac nl head tail wc stat file du df whoami id groups uname arch nproc hostname uptime free
    which type whereis whatis diff cmp comm colordiff ps pgrep pidof tree grep egrep fgrep zgrep rg ag ack sort uniq cut
    tr rev fold fmt pr column paste join expand unexpand od xxd hexdump strings md5sum sha1sum sha224sum sha256sum
    sha384sum sha512sum b2sum cksum sum basename dirname realpath readlink echo printf true false : test [ seq sleep
    expr jq base64 base32 cal date locale tty getconf lscpu lsblk zcat bzcat xzcat factor yes tsort shuf numfmt
    cd exit return break continue shift wait read jobs umask getopts times printenv set man pushd popd cloc tokei""".split()
)
WRITING = frozenset({"mkdir", "touch", "tee", "mv", "ln", "rmdir", "cp", "mktemp"})

# Options that make a looking command do something else: letters of a cluster, and long names.
_TURNING: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
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
        "uniq": ("", ()),
        "tail": ("", ()),
        "set": ("k", ()),
        "find": ("", ()),
    }
)
_DANGEROUS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("rm", "unlink", "shred", "srm", "truncate"), "deletes what cannot be brought back"),
        **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr"), "changes who may do what"),
        **dict.fromkeys(("kill", "pkill", "killall", "xkill"), "ends other programs"),
        **dict.fromkeys(("systemctl", "service", "launchctl", "initctl", "rc-service"), "starts or stops services"),
        **dict.fromkeys(("curl", "wget", "nc", "ncat", "telnet", "ftp", "scp", "sftp", "rsync", "socat"), "reaches the network"),
        **dict.fromkeys(("docker", "podman", "kubectl", "helm", "terraform", "nsenter", "unshare"), "reaches out of the workspace"),
        **dict.fromkeys(("dd", "fdisk", "parted", "sfdisk", "mount", "umount", "losetup"), "works on disks"),
        **dict.fromkeys(("psql", "mysql", "mariadb", "sqlite3", "mongosh", "redis-cli"), "may change a database"),
        **dict.fromkeys(("crontab", "at", "batch"), "changes what runs later"),
        **dict.fromkeys(("source", ".", "let", "shopt", "enable", "hash", "bind", "complete"), "changes the shell itself"),
        **dict.fromkeys(("python", "python3", "perl", "ruby", "node", "php", "lua", "osascript"), "runs code that is not judged"),
        **dict.fromkeys(("apt", "apt-get", "dnf", "yum", "brew", "pip", "pip3", "npm", "gem"), "installs or removes software"),
    }
)
_TESTED_TEXT = re.compile(r"\$\(|`")


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
    elif name in LOOKING:
        why = _looks(call, places)
    elif name in WRITING:
        why = _writes(call, places)
    elif name in _DANGEROUS:
        why = f"{name} {_DANGEROUS[name]}"
    else:
        return Doubt(f"{name[:60]} is not a command known to be harmless", unfamiliar=True)
    return Doubt(why) if why else _secrets(call, places)


def _secrets(call: Call, places: Places) -> Doubt | None:
    """A word that names a secret, wherever it stands. A pattern or a text is not a path unless it has a slash."""
    name, folders = name_of(call.words[0]), call.scope.places()
    texts = [word.text for word in call.words[1:]]
    deep = name in ("rg", "ag", "ack") or (
        name in ("grep", "egrep", "zgrep", "cp") and any(re.match(r"-\w*[rRa]|--(?:d?e?r|recursive)", text) for text in texts)
    )
    skipped = 1 if name in ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "sed", "awk", "jq") else 0
    for word in call.words[1:]:
        text = word.text.partition("=")[2] if re.match(r"--?[\w-]+=", word.text) else word.text
        if not text or text.startswith("-") or " " in text:
            continue
        if "/" not in text and (name in ("echo", "printf", "test", "[", "git") or skipped):
            skipped = 0
            continue
        skipped = 0
        found = places.reading(Word(text, word.sure, word.glob), folders, deep=deep)
        if found is not None and name not in ("ls", "stat", "du", "file", "find"):
            return Doubt(found.why)
        if found is not None and places.is_secret("/".join(text.split("/")[:-1]) or "-"):
            return Doubt(found.why)
    return None


def _looks(call: Call, places: Places) -> str:
    name = name_of(call.words[0])
    letters, long = _TURNING.get(name, ("", ()))
    why = option_doubt(call.words[1:], letters, long) if letters or long else ""
    if why:
        return f"{name} {why}"
    if name == "printf" and len(call.words) > 1 and (call.words[1].text.startswith("-v") or call.words[1].text[:1] == UNKNOWN):
        return "printf sets a variable"
    operands = [word for word in call.words[1:] if not word.text.startswith("-")]
    if name in ("uniq", "xxd") and len(operands) > 1:
        found = places.writing(operands[-1], call.scope.places())
        return found.why if found else ""
    if name in ("printenv", "set") and len(call.words) == 1:
        return f"{name} shows the whole environment"
    if name == "hostname" and operands:
        return "hostname renames the machine"
    if name in ("test", "[", "read", "printf", "getopts", "expr") and any(_TESTED_TEXT.search(word.text) for word in call.words):
        return f"{name} is given text that the shell may run"
    return ""


def option_doubt(words: Sequence[Word], letters: str, long: Sequence[str]) -> str:
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


def _writes(call: Call, places: Places) -> str:
    name = name_of(call.words[0])
    targets = [word for word in call.words[1:] if word.text == "-" or not word.text.startswith("-")]
    targets += [Word(word.text.partition("=")[2], word.sure) for word in call.words[1:] if word.text.startswith("--") and "=" in word.text]
    if name == "mktemp":
        return "" if len(call.words) == 1 else "mktemp is told where"
    if name == "cp" and not any(re.match(r"-\w*t|--t", word.text) for word in call.words[1:]):
        targets = targets[-1:]
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
    if len(words) < 2 or not words[0].sure or not re.fullmatch(r"(?:[ugoa]*[+-][rx]+)|[64][64][40]|7[50][50]", words[0].text):
        return "chmod changes who may do what"
    return next((found.why for word in words[1:] if (found := places.writing(word, call.scope.places()))), "")


def _command(call: Call, places: Places) -> str:
    if len(call.words) > 1 and call.words[1].text in ("-v", "-V"):
        return ""
    return "command is used in a way that is not understood"


def _find(call: Call, places: Places) -> str:
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
        **dict.fromkeys(("sudo", "doas", "su", "env", "xargs", "timeout", "nice", "nohup", "eval", "exec", "time"), _sudo_like),
        "chmod": _chmod,
        "command": _command,
        "find": _find,
    }
)
