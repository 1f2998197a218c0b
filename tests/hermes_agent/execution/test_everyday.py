"""Everyday work runs behind each sandbox, without a question: real command lines, and whole jobs, as two users."""

from __future__ import annotations

import shutil

import pytest
from tests.support import localhost

from hermes_agent.approvals.shell.judge import judge

from .effects import HERE, lines
from .sandbox_worker import start, users

pytestmark = pytest.mark.slow

HOME = "/home/ada"
SPACE = f"{HOME}/projects/space"
KINDS = {"network": "network", "outside": "folder", "service": "host", "irreversible": "change"}

NOT_WITH_LANDLOCK = {
    # There is no socket at all.
    "asyncio_subprocess", "http_server", "loopback", "node_script", "pytest_loopback", "unix_sockets",
    # /dev/shm is shared with the machine and therefore closed, and with it named semaphores.
    "multiprocessing_manager", "multiprocessing_pool", "multiprocessing_start", "shared_memory",
    # Temporary files belong into $TMPDIR.
    "shared_folders",
}  # fmt: skip
"""What the second sandbox cannot do; docs and `hermes doctor` say so."""


def verdict(command: str):  # type: ignore[no-untyped-def]
    return judge(command, workdir=SPACE, workspace=SPACE, home=f"{HOME}/.hermes", user_home=HOME)


def test_at_most_one_everyday_line_in_a_hundred_asks() -> None:
    everyday = lines(HERE / "everyday_lines.txt")
    assert len(set(everyday)) == len(everyday) >= 350
    asked = [line for line in everyday if verdict(line).level != "run"]
    assert len(asked) <= len(everyday) / 100, asked


@pytest.mark.parametrize("entry", lines(HERE / "asking_lines.txt"))
def test_a_line_that_needs_a_person_asks_and_says_why(entry: str) -> None:
    need, _, command = entry.partition("\t")
    judgement = verdict(command)
    assert judgement.level == "ask"
    assert KINDS[need] in {one.kind for one in judgement.needs}, judgement


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_jobs(sandbox: str, user: int, seed: int, request: pytest.FixtureRequest) -> None:
    """Half of the jobs behind bubblewrap, a quarter as a second user and with Landlock, drawn; all with `--long`."""
    share = 1 if request.config.getoption("--long") else 2 if sandbox == "bubblewrap" and user == users()[0] else 4
    reports = start(user, sandbox, "jobs", share=share, seed=seed)
    assert len(reports) >= 30 // share
    assert {report["job"]: report["effects"] for report in reports if report["effects"]} == {}
    failed = {report["job"]: report["output"] for report in reports if not report["ok"]}
    lacking = NOT_WITH_LANDLOCK if sandbox == "landlock" else set()
    missing = {report["job"]: names for report in reports if (names := _missing(report["job"]))}
    assert {job: output for job, output in failed.items() if job not in {*lacking, *missing}} == {}
    if missing:
        pytest.skip(f"the other jobs passed; this machine has no {', '.join(sorted(set().union(*missing.values())))}")


def _missing(job: str) -> set[str]:
    """What a job names in its line `# needs:` and this machine has not: programs, or the name localhost."""
    text = (HERE / "jobs" / f"{job}.sh").read_text()
    named = [name for line in text.splitlines() if line.startswith("# needs:") for name in line.split()[2:]]
    return {name for name in named if not (localhost.known() if name == "localhost" else shutil.which(name))}
