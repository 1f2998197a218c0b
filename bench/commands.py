"""Commands: what the sandbox around one costs, and how long the judge takes for the longest line there can be.

The floors of a command are the same one started by a plain fork and exec, and by Hermes without a sandbox (`executor:
host`), in the same run, asked in turns with the sandboxes. The limit is for the sandbox, so for the time over the
second. The judge's lines are of the kinds that made it slow: open braces and brackets, substitutions, quotes, a long
document."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from hermes_agent.approvals.shell.judge import judge
from hermes_agent.execution import executor
from hermes_agent.execution.base import ExecutorUnavailable, ShellCommand
from hermes_agent.execution.executor import Executor
from hermes_config.config import of as config_of
from hermes_config.limits import DEFAULTS

LONGEST = 131_072
MOST_OVER, MOST_JUDGING = 10.0, 50.0


def plain(workspace: Path, environ: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(["bash", "-c", "true"], cwd=workspace, env=environ, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


async def held(run: Executor, workspace: Path, environ: dict[str, str]) -> float:
    began = time.perf_counter()
    command = ShellCommand(("bash", "-c", "true"), workspace, environ, "true")
    async with run.run(command, workspace=workspace, on_output=lambda _: None) as child:
        assert await child.exited() == 0, child.trouble
    return time.perf_counter() - began


def sandboxes() -> list[str]:
    found = []
    for sandbox in ("bubblewrap", "landlock"):
        try:
            executor.find(sandbox)
        except ExecutorUnavailable as error:
            print(f"  {error.one_line()}")
        else:
            found.append(sandbox)
    return found


class Line(NamedTuple):
    what: str
    ms: float
    over_host: float | None = None
    """For a sandbox: what it takes longer than the same command without one."""
    target: float | None = None

    @property
    def missed(self) -> bool:
        return self.target is not None and (self.ms if self.over_host is None else self.over_host) > self.target

    def __str__(self) -> str:
        over = "" if self.over_host is None else f"{self.over_host:.2f} ms"
        wanted = "" if self.target is None else f"at most {self.target:g} ms  {'MISSED' if self.missed else 'ok'}"
        return f"  {self.what:<48}{self.ms:>9.2f} ms{over:>24}  {wanted}".rstrip()


def measure(folder: Path, files: int, rounds: int) -> list[Line]:
    workspace, home = folder / f"workspace-{files}", folder / "home"
    for number in range(files):
        path = workspace / f"folder-{number // 50}" / f"file-{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    workspace.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    took: dict[str, list[float]] = {"plain": []}
    kinds = (*sandboxes(), "host")
    runs = {kind: Executor(home, config_of(home, {"executor": kind}), DEFAULTS) for kind in kinds}

    async def go() -> None:
        for number in range(rounds + 5):  # the first ones start the supervisor and fill caches
            took["plain"].append(plain(workspace, environ))
            for sandbox, run in runs.items():
                took.setdefault(sandbox, []).append(await held(run, workspace, environ))
            if number == 4:
                for figures in took.values():
                    figures.clear()

    asyncio.run(go())
    middle = {name: statistics.median(figures) * 1e3 for name, figures in took.items()}
    lines = [Line(f"plain fork and exec, {files:,} files", middle["plain"])]
    for sandbox in runs:
        over = middle[sandbox] - middle["plain"]
        lines.append(
            Line("host executor: over plain", over)
            if sandbox == "host"
            else Line(f"{sandbox}: over plain", over, middle[sandbox] - middle["host"], MOST_OVER)
        )
    return lines


def longest_lines() -> dict[str, str]:
    document = "cat > notes.txt <<'EOF'\n" + "a line of some document, with 'quotes' and $(things)\n" * 2_500
    return {
        "open braces": "echo " + "{" * (LONGEST - 5),
        "pairs of braces": "echo " + "{a,b}" * (LONGEST // 5 - 1),
        "open brackets": "(" * LONGEST,
        "substitutions": "echo " + "$(" * (LONGEST // 2 - 3),
        "quotes": "echo " + "'a'\"b\"" * (LONGEST // 6 - 1),
        "short commands": "a;" * (LONGEST // 2),
        "words": "echo " + "a " * (LONGEST // 2 - 3),
        "backslashes": "echo " + "\\" * (LONGEST - 6),
        "a document": document[: LONGEST - 5] + "\nEOF",
    }


def judged() -> list[Line]:
    judge("ls", workdir="/home/ada/project", workspace="/home/ada/project", home="/home/ada/.hermes")
    lines = []
    for name, line in longest_lines().items():
        took = []
        for _ in range(5):
            began = time.perf_counter()
            judge(line, workdir="/home/ada/project", workspace="/home/ada/project", home="/home/ada/.hermes")
            took.append(time.perf_counter() - began)
        middle = statistics.median(took) * 1e3
        lines.append(Line(f"judging {len(line):,} characters: {name}", middle, target=MOST_JUDGING))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    # Not below /tmp, which is private in the sandbox, nor in a repository, whose settings would be watched, too.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        lines = [*measure(Path(folder), 0, rounds), *measure(Path(folder), 5_000, rounds)]
    lines += judged()
    print(f"{'':<62}{'over the host executor':>24}")
    print(*lines, sep="\n")
    return int(any(line.missed for line in lines))


if __name__ == "__main__":
    sys.exit(main())
