"""Draws hostile commands: a program of /usr/bin with options and operands that lead out of the workspace.

    python fuzz.py SEED COUNT       print some

`sandbox_worker.py SANDBOX fuzz SEED SECONDS` runs them and judges by effect. The options are drawn from what programs
in general understand and from what stands in each program; the operands are files, folders, sockets, ports and
processes of the throw-away world, the roads of /proc to them, and words of a shell. Nothing is drawn that would be
aimed at the machine if a sandbox did not hold: no program that ends, mounts, formats or configures a machine or works
on processes by number, no device, and no folder but those of the world."""

from __future__ import annotations

import os
import random
import re
import shlex
import sys
from functools import cache

_NEVER = re.compile(
    r"^(reboot|shutdown|halt|poweroff|init|telinit|systemctl|mkfs.*|mke2fs|wipefs|fdisk|sfdisk|cfdisk|parted|dd|shred|blk.*"
    r"|swap.*|mkswap|losetup|.*mount.*|hwclock|date|timedatectl|hostname.*|loginctl|journalctl|kill.*|pkill|skill|snice|fuser"
    r"|useradd|userdel|usermod|group.*|passwd|chpasswd|chage|chsh|chfn|vipw|gpasswd|newgrp|apt.*|dpkg.*|update-.*|deb.*"
    r"|ldconfig|depmod|modprobe|insmod|rmmod|sysctl|ip|ifconfig|route|iptables.*|nft|tc|docker.*|podman.*|kexec|grub.*"
    r"|rm|rmdir|yes|stress.*|watch|top|htop|screen|tmux|script|tail|sleep|cat|tac|issues|duplicates|claude.*|pg_.*|initdb"
    r"|postgres|setterm|chvt|openvt|deallocvt|resize.*|e2.*|tune2fs|debugfs|dumpe2fs|badblocks|zramctl|sg|su|sudo.*"
    r"|renice|ionice|taskset|chrt|prlimit|choom|uclampset|ipc.*|systemd-.*|busctl|crontab|at|atrm|batch|run-parts|lsof)$"
)
"""Left out: what acts on the machine as a whole, waits for somebody, or floods."""

_FILES = (
    "{V}", "{OUT}", "{OUT}/new", "{OUT}/folder", "{OUT}/folder/inside", "{OUT}/private", "{OUT}/script.sh", "{S}",
    "{HOME}", "{HOME}/.bashrc", "{HOME}/.aws/credentials", "{HERMES}/.env", "{HERMES}/state.db",
    "{HERMES}/config.yaml", "{TMP}new", "{TMP}victim", "../victim", "../../victim", "../neighbour",
    "../neighbour/file", "link/inside", "link/new", "lin1", ".env", "sub/.env", ".git/config",
    ".git/hooks/post-checkout", ".git/hooks/pre-commit", ".envrc", ".npmrc", ".mcp.json", ".vscode/tasks.json",
    ".claude/settings.json", ".bashrc", ".git", ".git/commondir", "/proc/{GW}/environ", "/proc/{GW}/mem",
    "/proc/self/root{V}", "/proc/self/root{S}", "/proc/1/root{S}", "/proc/{GW}/root{S}", "/proc/{GW}/cwd",
    "/proc/{GW}/fd/0", "/proc/self/environ", "/proc/1/environ", "/proc/$PPID/environ", "/proc/self/cwd/../../victim",
    "{SOCK}", "{DSOCK}",
)  # fmt: skip
_OWN = (
    "a",
    "b",
    "payload",
    "list",
    "x",
    "evil.py",
    "src",
    "new",
    ".",
    "f",
    "s",
    "-",
    "x.sh",
    "src/app.py",
    "made/here",
)
_PLACES = (
    "127.0.0.1:{PORT}", "http://127.0.0.1:{PORT}/", "127.0.0.1 {PORT}", "{ADDRESS}:{PORT}", "localhost", "unix:{SOCK}",
    "tcp:127.0.0.1:{PORT}", "git://127.0.0.1:{PORT}/x", "ssh://127.0.0.1:{PORT}/x", "file://{S}", "unix-connect:{SOCK}",
    "abstract-connect:{ABS}", "udp:127.0.0.1:{PORT}", "/dev/tcp/127.0.0.1/{PORT}", "ftp://127.0.0.1:{PORT}/",
)  # fmt: skip
_WORDS = ("{GW}", "1", "0", "-1", "777", "x", "s/was/is/", "p", "{PORT}", "exec=./x", "sh -c ./x")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LONG = ("output", "file", "config", "force", "recursive", "in-place", "exec", "log", "input", "reference", "directory")


@cache
def programs() -> tuple[str, ...]:
    """Everything that can be run from /usr/bin and may be."""
    with os.scandir("/usr/bin") as entries:
        names = sorted(entry.name for entry in entries if os.access(entry.path, os.X_OK) and entry.is_file())
    return tuple(name for name in names if not _NEVER.match(name))


class Commands:
    """A stream of commands that depends on the seed alone (and on what is installed)."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._known: dict[str, tuple[str, ...]] = {}

    def draw(self) -> str:
        """One command line with the placeholders of `effects`."""
        some = self._random
        line = self._simple()
        shape = some.random()
        if shape < 0.12:
            line = f"{line} {some.choice(('>', '>>', '<', '<>', '>|', '&>'))} {self._operand()}"
        elif shape < 0.2:
            line = f"cat {self._operand()} | {line}"
        elif shape < 0.27:
            line = f"echo {self._operand()} | xargs {line}"
        elif shape < 0.33:
            line = f"cd {some.choice(('link', '{OUT}', '{HOME}', '..', 'src'))} && {line}"
        elif shape < 0.39:
            line = f"ln -s {self._operand()} l; {line} l"
        elif shape < 0.44:
            line = f"{self._simple()}; {line}"
        elif shape < 0.48:
            line = f"find . {some.choice(('', '{OUT}', '{HOME}'))} -maxdepth 2 -exec {line} {{}} \\;"
        elif shape < 0.5:
            line = f"setsid {line} &"
        elif shape < 0.53:
            line = f"mkdir -p made; {line} made/here; cp -a made/here {self._operand()}"
        return f"timeout 1 bash -c {shlex.quote(line)} < /dev/null 2>&1 | head -c 200000"

    def _simple(self) -> str:
        some = self._random
        name = some.choice(programs())
        words = [name]
        for _ in range(some.choice((0, 1, 1, 2, 2, 3))):
            words.append(self._option(name))
        for _ in range(some.choice((0, 1, 1, 2, 2, 3))):
            words.append(self._operand())
        if some.random() < 0.3:
            head, tail = words[:1], words[1:]
            some.shuffle(tail)
            words = head + tail
        return " ".join(words)

    def _operand(self) -> str:
        some = self._random
        kind = some.random()
        if kind < 0.6:
            return some.choice(_FILES)
        if kind < 0.78:
            return some.choice(_OWN)
        return some.choice(_PLACES if kind < 0.9 else _WORDS)

    def _option(self, name: str) -> str:
        some = self._random
        known = self._options(name)
        option = some.choice(known) if known and some.random() < 0.7 else self._any_option()
        if option.startswith("--") and option.endswith("="):
            return f"{option}{self._operand()}"
        if some.random() < 0.35:
            return f"{option}{some.choice((' ', '', '='))}{self._operand()}"
        return option

    def _any_option(self) -> str:
        some = self._random
        if some.random() < 0.75:
            return "-" + "".join(some.choice(_LETTERS) for _ in range(some.choice((1, 1, 1, 2))))
        return f"--{some.choice(_LONG)}{some.choice(('', '='))}"

    def _options(self, name: str) -> tuple[str, ...]:
        """What `strings` finds in the program that looks like an option: nothing of it is run to find out."""
        if name not in self._known:
            try:
                with open(f"/usr/bin/{name}", "rb") as file:  # noqa: PTH123 - a plain read
                    data = file.read(400_000)
            except OSError:
                data = b""
            found = re.findall(rb"(?<![\w-])(--?[a-zA-Z][a-z-]{1,20}=?)(?![\w-])", data)
            names = sorted({word.decode() for word in found})
            if data.startswith(b"\x7fELF"):
                # long options stand in an ELF program without their dashes
                bare = re.findall(rb"\0([a-z][a-z]{2,10}(?:-[a-z]{2,10}){0,2})(?=\0)", data)
                names += [f"--{word.decode()}" for word in sorted(set(bare))[:60]]
            self._known[name] = tuple(names)
        return self._known[name]


if __name__ == "__main__":
    stream = Commands(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        print(stream.draw())
