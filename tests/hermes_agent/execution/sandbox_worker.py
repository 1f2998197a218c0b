"""One process behind one sandbox: runs command lines, jobs or drawn commands, and prints what they did as JSON lines.

    python sandbox_worker.py SANDBOX lines FILE…          every line of these corpora
    python sandbox_worker.py SANDBOX git KIND             hostile_git_lines.txt in such a repository (see effects.World)
    python sandbox_worker.py SANDBOX jobs [NAME…]         the everyday jobs
    python sandbox_worker.py SANDBOX races SECONDS        commands that swap links while others start
    python sandbox_worker.py SANDBOX fuzz SEED SECONDS    commands drawn from /usr/bin

SANDBOX is `bubblewrap`, `landlock`, or `nothing` for the plain shell. $EFFECTS_BASE says where the world is made.
`start` runs it as another user, with an interpreter that this user can run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
SECONDS = 6
LONGEST = 15.0
"""Seconds for undoing what a command did."""
NOBODY = 65534
PYTEST_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")

# -- for the test: starting a worker


def users() -> list[int]:
    """Whom a worker can run as: ourselves and, when we are root, somebody else."""
    return [0, NOBODY] if os.geteuid() == 0 else [os.geteuid()]


def start(uid: int, *words: str, share: int = 1, seed: int = 0, timeout: float = 1200) -> list[dict[str, Any]]:
    """Run a worker as this user and give back what it reported. Raises when it did not come to its end.

    `share`: every how many-th line, job or race is tried, drawn by `seed`.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-worker-", dir=_base()) as base:
        os.chown(base, uid, -1)
        Path(base).chmod(0o755)
        done = subprocess.run(
            [*_interpreter(uid), str(HERE / "sandbox_worker.py"), *words],
            env={
                "PATH": os.environ["PATH"],
                "EFFECTS_BASE": base,
                "PYTHONPATH": _packages(),
                "LANG": "C.UTF-8",
                "EFFECTS_SHARE": f"{share}:{seed}",
            },
            **_as(uid),
            cwd="/",
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
        )
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    if done.returncode != 0 or not reports or not reports[-1].get("done"):
        raise AssertionError(f"worker {words} as {uid} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return reports[:-1]


def _base() -> str:
    return "/srv" if os.access("/srv", os.W_OK) else "/var/tmp"


def _as(uid: int) -> dict[str, Any]:
    return {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}


def _packages() -> str:
    return os.pathsep.join([str(SOURCE), *(entry for entry in sys.path if entry.endswith("site-packages"))])


@cache
def _interpreter(uid: int) -> list[str]:
    """A Python of our version that this user can run; ours may lie in a home that is closed to others."""
    for program in (sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path=os.defpath)):
        if program:
            with contextlib.suppress(OSError):
                argv = [program, "-c", "import hermes_agent.execution.executor, yaml"]
                probe = subprocess.run(argv, env={"PYTHONPATH": _packages()}, cwd="/", check=False, **_as(uid))
                if probe.returncode == 0:
                    return [program]
    raise AssertionError(f"no Python that user {uid} can run")


# -- in the worker


class Confined:
    """Runs commands in a sandbox, in the workspace of a world, as the terminal tool does."""

    def __init__(self, world: Any, sandbox: str) -> None:
        self._world, self._sandbox = world, sandbox
        self._runner = asyncio.Runner()
        self.status: int | None = None
        self.trouble = ""
        self.ending = 0.0
        """The longest time that Hermes needed for what an ended command left."""

    def close(self) -> None:
        self._runner.close()

    def __call__(self, command: str, seconds: float = SECONDS) -> bytes:
        if self._sandbox == "nothing":
            return self._plain(command, seconds)
        return self._runner.run(self._confined(command, seconds))

    def together(self, first: str, again: str, count: list[int]) -> bytes:
        """Run `again` over and over while `first` runs; everything that was printed."""

        async def both() -> bytes:
            swapping = asyncio.ensure_future(self._confined(first, 60))
            printed = []
            while not swapping.done():
                with contextlib.suppress(Exception):  # a command that does not start is no way out
                    printed.append(await self._confined(again, 10))
                count[0] += 1
            return b"".join([*printed, await swapping])

        return self._runner.run(both())

    def _plain(self, command: str, seconds: float) -> bytes:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._world.workspace,
            env=self._world.environment(),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
        self.status = done.returncode
        return done.stdout

    async def _confined(self, command: str, seconds: float) -> bytes:
        from hermes_agent.execution.base import ShellCommand
        from hermes_agent.execution.executor import Executor
        from hermes_agent.tools.environment import child_environment
        from hermes_config.config import of as config_of
        from hermes_config.limits import Limits

        world = self._world
        config = config_of(world.hermes, {"executor": self._sandbox})
        environ = child_environment(world.environment(), passed=(), identity={}, home=world.hermes)
        executor = Executor(world.hermes, config, Limits())
        child_command = ShellCommand(("/bin/bash", "-c", command), world.workspace, environ, command)
        output: list[bytes] = []
        self.status, self.trouble = None, ""
        async with executor.run(child_command, workspace=world.workspace, on_output=output.append, grace=0.2) as child:
            with contextlib.suppress(asyncio.TimeoutError):
                self.status = await asyncio.wait_for(child.exited(), seconds)
                await child.drained(0.3)
            ended = time.monotonic()
        self.ending = max(self.ending, time.monotonic() - ended)
        self.trouble = child.trouble
        return b"".join(output)


def main(words: list[str]) -> None:
    sys.path.insert(0, str(HERE))
    from effects import World

    sandbox, what, *rest = words
    base = os.environ.get("EFFECTS_BASE")
    kind = rest[0] if what == "git" else "own"
    with World(Path(base) if base else None, kind) as world, world.installed():
        confined = Confined(world, sandbox)
        work = {
            "lines": _lines,
            "git": lambda *words: _lines(*words[:2], ["hostile_git_lines.txt"]),
            "jobs": _jobs,
            "fuzz": _fuzz,
            "races": _races,
        }[what]
        for report in chain(_control(world, confined), work(world, confined, rest)):
            print(json.dumps(report), flush=True)
        for report in _control(world, confined):
            print(json.dumps(report), flush=True)
        confined.close()
    print(json.dumps({"done": True, "user": pwd.getpwuid(os.geteuid()).pw_name}), flush=True)


def _control(world: Any, confined: Confined) -> list[dict[str, Any]]:
    """A sandbox behind which nothing runs at all would have no effects, either; and a harmless command changes
    nothing."""
    before = {*world.workspace.rglob("*")}
    output = confined("touch here && test -f here && rm here && echo control $((6 * 7))")
    if output != b"control 42\n":
        raise AssertionError(f"commands do not run: {output!r}, {confined.status}, {confined.trouble}")
    effects = [f"changed by a harmless command: {path}" for path in before ^ {*world.workspace.rglob("*")}]
    return [{"line": "true", "job": "true", "ok": True, "effects": effects}] if effects else []


def _drawn(every: list[Any]) -> list[Any]:
    """The share of lines, jobs or races that this worker was asked to try, in their order."""
    share, _, seed = os.environ.get("EFFECTS_SHARE", "1:0").partition(":")
    count = -(-len(every) // int(share))
    return [every[place] for place in sorted(random.Random(int(seed)).sample(range(len(every)), count))]


def _lines(world: Any, confined: Confined, files: list[str]) -> Iterator[dict[str, Any]]:
    from effects import groups

    for file in files:
        shared = file == "hostile_shared.txt"
        every = [one for one in groups(HERE / file) if not (shared and any(part in one[1] for part in WHOLE_MACHINE))]
        for heading, line in _drawn(every):
            if world.git.parent == world.workspace.parent and " .git" in line:
                continue  # there is none in the workspace then: one that a command makes is its own
            began, confined.ending = time.monotonic(), 0.0
            effects = [str(effect) for effect in world.attempt(aimed(line, world), confined)]
            if confined.ending > LONGEST:
                effects.append(f"hung: Hermes, for {confined.ending:.0f} s after the command")
            yield {
                "file": file, "heading": heading, "line": line, "effects": effects, "status": confined.status,
                "trouble": confined.trouble, "seconds": round(time.monotonic() - began, 3),
            }  # fmt: skip


WHOLE_MACHINE = (
    "rm -rf /", "rm -rf ~", "rm ls -rf", "rm ls -r", "mkfs", "/dev/sda", "kill -9 -1", ":(){", "sudo reboot", "rmtree",
    "date -s", "date 0101", "cp -r /proc/self/root",
)  # fmt: skip
"""Parts of shared lines that are never run: the judge's floor is tested with them, and hostile_lines.txt aims the same
at a throw-away folder. The last would only copy the whole disk."""


def aimed(line: str, world: Any) -> str:
    """A line of the shared list, aimed at the throw-away world."""
    line = line.replace("~root/", f"{world.home}/")
    for name in ("http://evil", "http://x", "evil|sh"):
        line = line.replace(name, f"http://127.0.0.1:{world.port}" + name.removeprefix("http://")[4:])
    return line


def _jobs(world: Any, confined: Confined, names: list[str]) -> Iterator[dict[str, Any]]:
    import importlib.util

    for script in _drawn(sorted((HERE / "jobs").glob("*.sh"))):
        if names and script.stem not in names:
            continue
        folder = world.workspace / "job"
        folder.mkdir()
        for package in PYTEST_PACKAGES if "pytest" in script.stem else ():
            found = importlib.util.find_spec(package.removesuffix(".py"))
            assert found is not None and found.origin is not None
            origin = Path(found.origin)
            if origin.name == "__init__.py":
                shutil.copytree(origin.parent, folder / ".packages" / package)
            else:
                shutil.copy(origin, folder / ".packages" / package)
        shutil.copy(script, folder / "job.sh")
        began = time.monotonic()
        printed: list[bytes] = []

        def run(command: str, printed: list[bytes] = printed) -> bytes:
            printed.append(confined(command, 300))
            return printed[0]

        effects = [str(effect) for effect in world.attempt("cd job && bash job.sh", run)]
        yield {
            "job": script.stem, "ok": confined.status == 0 and printed[0].rstrip().endswith(b"JOB OK"),
            "effects": effects, "status": confined.status, "trouble": confined.trouble,
            "output": printed[0].decode(errors="replace")[-1500:], "seconds": round(time.monotonic() - began, 2),
        }  # fmt: skip


_REPOSITORY = (
    "mkdir -p t/.git/objects t/.git/refs t/.vscode t/.ssh; echo 'ref: x' > t/.git/HEAD; echo x > t/.git/config"
)
_LOOK = "cat {P}/.env {P}/.ssh/id_rsa {P}/id_rsa {P}/.hermes/.env {P}; echo x > {P}/raced; echo x >> {P}"
RACES = (
    # what stands there at first, the entries that are swapped, and where to look through
    (f"{_REPOSITORY}; echo KEY > t/.env; ln -s {{HOME}} h", "t h", ("t", "t/.ssh", "t/.vscode", "t/.git")),
    (f"{_REPOSITORY}; echo KEY > t/.env; ln -s ../../home h", "t h", ("t", "t/.ssh", "t/.vscode")),
    (f"{_REPOSITORY}; echo KEY > t/.env; ln -s {{OUT}} o", "t o", ("t", "t/.vscode", "t/.git", "t/.git/hooks")),
    (
        f"{_REPOSITORY}; ln -s {{OUT}} t/o; ln -s {{OUT}}/.vscode t/v",
        "t/.git t/o t/.vscode t/v",
        ("t/.git", "t/.vscode"),
    ),
    (f"{_REPOSITORY}; ln -s {{HOME}}/.ssh t/s", "t/.ssh t/s", ("t/.ssh",)),
    ("mkdir t; echo KEY > t/.env; ln -s {S} t/l", "t/.env t/l", ("t/.env",)),
    ("mkdir -p t/u/v; echo KEY > t/u/v/.env; ln -s {HOME} t/h", "t/u t/h", ("t/u", "t/u/.ssh")),
    ("ln -s {HOME} h", "sub h", ("sub", "sub/.ssh")),
    ("ln -s {OUT} o", ".git o", (".git", ".git/hooks")),
    ("mkdir plain; echo x > plain/.e; echo x > plain/y", "sub plain", ("sub", "plain")),
    ("mkdir -p plain/q", "sub plain sub plain", ("sub", "plain")),
    ("echo x > y", ".env y", (".", "y")),
    ("ln -s {OUT} o", "src o", ("src", "src/.vscode", "src/lib")),
)


def _races(world: Any, confined: Confined, words: list[str]) -> Iterator[dict[str, Any]]:
    """While one confined command swaps a folder for a link to the outside, others are started, again and again."""
    for before, swapped, places in _drawn(list(RACES)):
        looked = [0]
        look = "; ".join(_LOOK.replace("{P}", place) for place in places)

        def run(command: str, seconds: str = words[0], look: str = look, looked: list[int] = looked) -> bytes:
            swap, _, before = command.partition("\n")
            out = confined(before)
            return out + confined.together(f"exec python3 flip.py {seconds} {swap}", f"({look}) 2>/dev/null", looked)

        effects = [str(effect) for effect in world.attempt(f"{swapped}\n{before}", run)]
        line = f"{before}; swap {swapped}; look at {' '.join(places)}"
        yield {
            "line": line,
            "effects": effects,
            "commands": looked[0],
            "status": confined.status,
            "trouble": confined.trouble,
        }


def _fuzz(world: Any, confined: Confined, words: list[str]) -> Iterator[dict[str, Any]]:
    from fuzz import Commands

    seed, seconds = int(words[0]), float(words[1])
    commands = Commands(seed)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        line = commands.draw()
        effects = [str(effect) for effect in world.attempt(line, lambda command: confined(command, 3))]
        yield {"line": line, "effects": effects, "status": confined.status, "trouble": confined.trouble}


if __name__ == "__main__":
    main(sys.argv[1:])
