"""Commands: what the wall around one costs, and how long the judge takes for the longest line there can be.

The floor of a command is the same one started by a plain fork and exec in the same run, asked in turns with the walls.
The judge's lines are of the kinds that made it slow: open braces and brackets, substitutions, quotes, a long document.
"""

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


def walls() -> list[str]:
    found = []
    for wall in ("bubblewrap", "landlock"):
        try:
            executor.find(wall)
        except ExecutorUnavailable as error:
            print(f"  {error.one_line()}")
        else:
            found.append(wall)
    return found


def measure(folder: Path, files: int, rounds: int) -> list[tuple[str, float, float | None]]:
    workspace, home = folder / f"workspace-{files}", folder / "home"
    for number in range(files):
        path = workspace / f"folder-{number // 50}" / f"file-{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    workspace.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    took: dict[str, list[float]] = {"plain": []}
    runs = {wall: Executor(home, config_of(home, {"executor": wall}), DEFAULTS) for wall in (*walls(), "host")}

    async def go() -> None:
        for number in range(rounds + 5):  # the first ones start the supervisor and fill caches
            took["plain"].append(plain(workspace, environ))
            for wall, run in runs.items():
                took.setdefault(wall, []).append(await held(run, workspace, environ))
            if number == 4:
                for figures in took.values():
                    figures.clear()

    asyncio.run(go())
    middle = {name: statistics.median(figures) * 1e3 for name, figures in took.items()}
    lines: list[tuple[str, float, float | None]] = [(f"plain fork and exec, {files:,} files", middle["plain"], None)]
    for wall in runs:
        target = None if wall == "host" else MOST_OVER
        lines.append((f"{wall}: over that", middle[wall] - middle["plain"], target))
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


def judged() -> list[tuple[str, float, float | None]]:
    judge("ls", workdir="/home/ada/project", workspace="/home/ada/project", home="/home/ada/.hermes")
    lines: list[tuple[str, float, float | None]] = []
    for name, line in longest_lines().items():
        took = []
        for _ in range(5):
            began = time.perf_counter()
            judge(line, workdir="/home/ada/project", workspace="/home/ada/project", home="/home/ada/.hermes")
            took.append(time.perf_counter() - began)
        lines.append((f"judging {len(line):,} characters: {name}", statistics.median(took) * 1e3, MOST_JUDGING))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    # Not below /tmp, which is private behind the wall, nor in a repository, whose settings would be watched, too.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        lines = [*measure(Path(folder), 0, rounds), *measure(Path(folder), 5_000, rounds)]
    lines += judged()
    for what, measured, target in lines:
        wanted = "" if target is None else f"at most {target:g} ms  {'ok' if measured <= target else 'MISSED'}"
        print(f"  {what:<48}{measured:>9.2f} ms  {wanted}".rstrip())
    return 1 if any(target is not None and measured > target for _, measured, target in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
