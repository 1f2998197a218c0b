"""The programs the judge resolves are those a real bash runs.

A random line is judged. If it counts as understood, every program in it has a name and none is `canary`, bash must not
run canary either: else the judge has read the line differently than bash does, and a rule of `approvals.deny` about
canary would have been passed.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from hermes_agent.approvals.shell.judge import judge

from .shell_lines import Lines

pytestmark = pytest.mark.slow

TOOLS = ("cat", "ls", "sh", "env", "xargs", "timeout", "grep", "head")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    canary = folder / "canary"
    canary.write_text('#!/bin/bash\n: > "$SUNG"\n')
    canary.chmod(0o755)
    for name in TOOLS:
        found = shutil.which(name)
        assert found, f"this test needs {name}"
        (folder / name).symlink_to(found)
    return folder


def sings(line: str, tools: Path, workdir: Path, number: int) -> bool:
    sung = tools.parent / f"sung-{number}"
    workdir.mkdir()
    (workdir / "a").write_text("canary\n")
    bash = shutil.which("bash")
    assert bash, "this test needs bash"
    with suppress(subprocess.TimeoutExpired):  # it waits for something; what it did until then counts
        subprocess.run(
            [bash, "-c", line], cwd=workdir, stdin=subprocess.DEVNULL, timeout=5, check=False,
            env={"PATH": str(tools), "HOME": str(workdir), "SUNG": str(sung)}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return sung.exists()


def test_bash_runs_no_program_that_the_judge_did_not_name(
    tools: Path, tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    long = pytestconfig.getoption("--long")
    lines = Lines(seed if long else 20)  # a pull request does not fail by somebody else's luck
    silent = named = 0
    for number in range(20_000 if long else 2_500):
        line, workdir = lines.line(), tmp_path / f"work-{number}"
        found = judge(line, workdir=str(workdir), workspace=str(workdir), home=str(tmp_path / "home"), user_home="/u")
        names = [program.name for program in found.programs]
        named += "canary" in names
        if found.understood and None not in names and "canary" not in names:
            silent += 1
            assert not sings(line, tools, workdir, number), line
    assert silent > 100, "a judge that understands nothing proves nothing"
    assert named > 100


def test_the_canary_can_be_heard(tools: Path, tmp_path: Path) -> None:
    assert sings('x=can; sh -c "${x}ary"', tools, tmp_path / "work", 0)
    assert not sings("echo canary '$(canary)'", tools, tmp_path / "quiet", 1)
