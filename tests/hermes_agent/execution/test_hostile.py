"""Hostile lines behind each wall, as root and as somebody else: judged by what happened outside, and nothing may.

One process for each wall and user runs all lines in a throw-away world (`effects`); when this suite does not run as root,
there is one user. The drawn commands depend on a seed, which a failure names; `--long` draws for ten minutes.
"""

from __future__ import annotations

import random

import pytest

from hermes_agent.execution.executor import find
from hermes_config.errors import HermesError

from .effects import HERE, lines
from .wall_worker import WHOLE_MACHINE, start, users

pytestmark = pytest.mark.parametrize(
    ("wall", "user"), [(wall, user) for wall in ("bubblewrap", "landlock") for user in users()]
)

TIMES_AND_MODES = {
    "mkdir ./-x; touch -- -x/../../victim",
    "jobs -x touch {V}",
    *(
        line
        for line in lines(HERE / "hostile_lines.txt")
        if line.startswith(("chmod ", "touch ")) and ("{V}" in line or "{OUT}" in line)
    ),
    "python3 -c 'import os; os.utime(\"{V}\", (1, 1))'",
    "python3 -c 'import os; os.chmod(\"{V}\", 0)'",
    'python3 -c \'import os; os.setxattr("{V}", "user.x", b"y")\'',
    'python3 -c \'import os; os.chmod("/proc/self/fd/%d" % os.open("{V}", os.O_PATH), 0o777)\'',
}
"""The documented gap of Landlock: modes, times and attributes of files outside that the user owns."""


@pytest.fixture(autouse=True)
def _wall_works(wall: str) -> None:
    try:
        find(wall)
    except HermesError as error:
        pytest.skip(str(error))


def effects_of(wall: str, reports: list[dict[str, object]]) -> dict[str, object]:
    gap = TIMES_AND_MODES if wall == "landlock" else set()
    return {
        str(report["line"]): report["effects"] for report in reports if report["effects"] and report["line"] not in gap
    }


@pytest.mark.parametrize("file", ["hostile_lines.txt", "hostile_shared.txt"])
def test_no_hostile_line_has_an_effect(wall: str, user: int, file: str) -> None:
    reports = start(user, wall, "lines", file)
    every = lines(HERE / file)
    left_out = [line for line in every if any(part in line for part in WHOLE_MACHINE)] if "shared" in file else []
    assert len(reports) == len(every) - len(left_out) >= 300
    assert effects_of(wall, reports) == {}


def test_no_drawn_command_has_an_effect(wall: str, user: int, request: pytest.FixtureRequest) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    seconds = 600 if request.config.getoption("--long") else 15
    print(f"seed {seed}")
    reports = start(user, wall, "fuzz", str(seed), str(seconds))
    assert len(reports) >= seconds
    found = {line: effects for line, effects in effects_of(wall, reports).items() if not _only_times(wall, effects)}
    assert found == {}, f"seed {seed}"


def _only_times(wall: str, effects: object) -> bool:
    """Whether a drawn command did no more than the gap of Landlock lets it do."""
    assert isinstance(effects, list)
    return wall == "landlock" and all(effect.startswith("changed: ") for effect in effects)
