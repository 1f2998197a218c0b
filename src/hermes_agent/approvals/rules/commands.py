"""The visible needs of a call, by rules about its program: network, host, irreversible change, folder.

The tables are in `commands.toml`; this module holds the rules that a table cannot express. An unknown program needs
nothing: it runs confined, where forbidden actions fail.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources

from hermes_agent.approvals.rules.floor import is_recursive, operands, roots_of_find
from hermes_agent.approvals.rules.paths import Places
from hermes_agent.approvals.shell.words import UNKNOWN, Word, names
from hermes_agent.approvals.types import Need

_TABLES = tomllib.loads(resources.files(__package__).joinpath("commands.toml").read_text(encoding="utf-8"))


def _table(section: Mapping[str, str]) -> dict[str, frozenset[str]]:
    return {name: names(values) for several, values in section.items() for name in several.split()}


GLOBAL_OPTIONS = _table(_TABLES["global_options"])
"""Programs whose first operand is a subcommand, and their options that take the next word before it."""
WRAPPERS = {name: letters for letters, several in _TABLES["wrappers"]["options"].items() for name in several.split()}
"""Programs that run another command: their options of one letter that take the next word."""
OPERAND_FIRST, VALUED = names(_TABLES["wrappers"]["operand_first"]), names(_TABLES["wrappers"]["valued"])
RUNNERS, TEXT_BEHIND = frozenset(_TABLES["wrappers"]["runners"]), dict(_TABLES["wrappers"]["text_behind"])
_NETWORK, _DATABASES = names(_TABLES["network"]["programs"]), names(_TABLES["network"]["databases"])
_NETWORK_SUBCOMMANDS = _table(_TABLES["network"]["subcommands"])
_HOST, _HOST_SUBCOMMANDS = names(_TABLES["host"]["programs"]), _table(_TABLES["host"]["subcommands"])
_CHANGES = {call: (names(having), names(unless), why) for call, (having, unless, why) in _TABLES["change"].items()}
_WRITES = _table({kind: text for kind, text in _TABLES["writes"].items() if kind != "options"})
_WRITE_OPTIONS = _table(_TABLES["writes"]["options"])
_LOOPBACK = re.compile(
    r"(?:\w+://)?(?:[^/@\s]*@)?(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1?\]|::1)(?:[:/?#].*|)", re.DOTALL | re.I
)
_REMOTE = re.compile(r"(?!file:)[\w+.-]+://|[\w.-]+@[\w.-]+:|[\w-]+(?:\.[\w-]+)+:|[\w-]+:(?!//)", re.I)
_OFFLINE = names("--offline --no-index --help --version --no-install")
_NARROWED = re.compile(r"-(?:i?(?:name|path|wholename|regex)|empty|newer.*|[acm](?:time|min)|size)")


def needs(name: str, words: Sequence[Word], cwd: str | None, places: Places) -> Iterator[Need]:
    """The visible needs of a call. `words` begin with the program; global options are left out."""
    rest = [word for word in words[1:] if word.text]
    texts = [word.text for word in rest]
    shown = f"{name} {texts[0]}" if name in GLOBAL_OPTIONS and re.fullmatch(r"[\w:.-]+", "".join(texts[:1])) else name
    owner = operands(rest)[:1] if name in ("chown", "chgrp") else []
    if (name in _HOST or _listed(_HOST_SUBCOMMANDS, name, texts)) and not {"--help", "--version"} & set(texts):
        yield Need("host", shown, f"{shown} acts on the machine itself")
    elif owner and owner[0].sure and not any(text.startswith("--reference") for text in texts):
        yield Need("host", name, f"{name} gives files to another user")
    if _reaches_network(name, rest, texts):
        yield Need("network", shown, f"{shown} reaches the network")
    lost = _lost(name, rest, texts, cwd, places)
    if lost:
        yield Need("change", shown, lost)


def _listed(table: Mapping[str, frozenset[str]], name: str, texts: Sequence[str]) -> bool:
    """Whether the subcommand, alone or with the next word, is in the table."""
    values = table.get(name, frozenset())
    plain = [text for text in texts if not text.startswith("-") or name in ("pacman", "dpkg", "rpm", "sysctl", "date")]
    if not plain or values == {"*"}:
        return "*" in values or any(f"*+{text}" in values for text in texts)
    return plain[0] in values or any(f"{plain[0]}+{text}" in values or f"*+{text}" in values for text in texts)


def _reaches_network(name: str, rest: Sequence[Word], texts: Sequence[str]) -> bool:
    given, plain = set(texts), [word.text for word in operands(rest)]
    if _OFFLINE & given or texts in (["-h"], ["-V"], ["help"], ["-v"]):
        return False
    if name in _NETWORK:
        return _addresses(name, texts)
    if name in _DATABASES:
        hosts = [*(value for _, value in _values(texts, ("-h", "--host"))), *(text for text in texts if "://" in text)]
        return any(not _LOOPBACK.fullmatch(host) and not host.startswith("/") for host in hosts)
    match name, plain[:1]:
        case "rsync", _:
            return any(_REMOTE.match(text) and not _LOOPBACK.fullmatch(text) for text in plain)
        case "openssl", ["s_client"]:
            return not any(_LOOPBACK.fullmatch(text) for text in texts)
        case "npx", _:
            return bool({"-y", "--yes"} & given) or any(re.match(r"create-|degit|\S+@", text) for text in plain[:1])
        case "go", ["install" | "run"]:
            return any("@" in text for text in plain)
        case "npm", ["init"]:
            return len(plain) > 1
        case "deno", ["run"]:
            return any(text.startswith("https://") for text in plain)
    return _listed(_NETWORK_SUBCOMMANDS, name, texts) and not _stays_here(name, plain, given)


def _addresses(name: str, texts: Sequence[str]) -> bool:
    """Whether a network program is given an address other than this machine's."""
    if not texts or (name in ("nc", "ncat", "netcat") and any(re.match(r"-\w*l", text) for text in texts)):
        return False
    told = [text for before, text in zip(("", *texts), texts, strict=False) if before not in ("-H", "-d", "-e")]
    here = [bool(_LOOPBACK.fullmatch(text.replace(UNKNOWN, "1"))) for text in told]
    return not any(here) or any(re.match(r"\w+://", text) and not at for text, at in zip(told, here, strict=True))


def _stays_here(name: str, plain: Sequence[str], given: set[str]) -> bool:
    """Whether a subcommand is told to work with local data only."""
    if name in ("pip", "pip3"):
        local = {"--no-deps", "--no-build-isolation"} <= given and len(plain) > 1
        return local and all(re.match(r"[./~]", text) or text.endswith(".whl") for text in plain[1:])
    if name != "git" or len(plain) < 2 or UNKNOWN in plain[1]:
        return False
    if plain[0] == "clone":
        return plain[1].startswith("file:") or ":" not in plain[1]
    return "--no-fetch" in given if plain[0] == "submodule" else bool(re.match(r"[./~]|file:", plain[1]))


def _lost(name: str, rest: Sequence[Word], texts: Sequence[str], cwd: str | None, places: Places) -> str:
    """Why the call removes files of the workspace irreversibly; empty if it does not."""
    if name == "rm" and is_recursive(texts):
        temporary = bool(operands(rest)) and all(places.is_temporary(word, cwd) for word in operands(rest))
        return "" if temporary else "rm -r deletes folders and everything in them"
    if name == "find" and not all(places.is_temporary(root, cwd) for root in roots_of_find(rest)):
        runs = [texts[at + 1 : at + 3] for at, text in enumerate(texts) if text.startswith(("-exec", "-ok"))]
        wide = not any(_NARROWED.fullmatch(text) for text in texts)
        if ("-delete" in texts and wide) or any(run[:1] == ["rm"] and (wide or is_recursive(run[1:])) for run in runs):
            return "find deletes whatever it comes across"
    call = f"{name} {texts[0]}" if name == "git" and texts else name
    having, unless, why = _CHANGES.get(call, (frozenset[str](), frozenset[str](), ""))
    given = set(texts) | {f"-{letter}" for text in texts if re.fullmatch(r"-[a-zA-Z]+", text) for letter in text[1:]}
    return f"{call} {why}" if why and (not having or having & given) and not unless & given else ""


def written(name: str, rest: Sequence[Word], places: Places) -> Iterator[Word]:
    """The paths that a call visibly writes. `rest`: its words without the program and global options."""
    texts, plain = [word.text for word in rest], operands(rest)
    if name == "git" and texts[:2] == ["config", "--global"] and len(texts) > 3:
        yield Word(f"{places.user_home}/.gitconfig")
    creates = name == "tar" and ("--create" in texts or any(re.match(r"-?[a-zA-Z]*[cruA]", text) for text in texts[:1]))
    if creates:
        yield from (Word(text) for text in texts if re.search(r"\.(?:tar|t?gz|bz2|t?xz|zst)$", text))
    for option, value in _values(texts, () if creates else _WRITE_OPTIONS.get(name, ())):
        yield Word(f"{value}/x" if option in _WRITES["folders"] else value)
    if name in _WRITES["last"] and len(plain) > 1 and not _REMOTE.match(plain[-1].text):
        yield plain[-1]
    if name in _WRITES["all"] | _WRITES["behind_first"]:
        yield from plain[name in _WRITES["behind_first"] :]
    if name in _WRITES["first"]:
        yield from plain[:1]
    if name in ("dd", "make"):
        yield from (Word(text[3:]) for text in texts if text.startswith("of="))
        yield from (Word(match[1] + "/x") for text in texts if (match := re.match(r"(?:PREFIX|DESTDIR)=(/.*)", text)))
    if name in ("sed", "perl") and any(re.match(r"-\w*i|--in-place", text) for text in texts):
        scripted = name == "sed" and any(re.match(r"-\w*[ef]$|--expression|--file", text) for text in texts)
        yield from plain[not scripted :]
    match name, [word.text for word in plain[:2]]:
        case ("python" | "python3", ["venv", *_]) | ("git", ["init" | "push", *_]) | ("cargo", ["new" | "init", *_]):
            yield from plain[1:2]
        case ("git", ["clone", *_] | ["worktree", "add"]):
            yield from plain[2:3]


def _values(texts: Sequence[str], options: Sequence[str] | frozenset[str]) -> Iterator[tuple[str, str]]:
    """The values of options: `-o x`, `-ox`, `--output x`, `--output=x`."""
    for at, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if text in options and at + 1 < len(texts):
            yield text, texts[at + 1]
        elif equals and name.startswith("--") and name in options:
            yield name, value
        elif text[:2] in options and len(text) > 2 and text[1] != "-":
            yield text[:2], text[2:]
