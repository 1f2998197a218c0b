"""`hermes doctor` where the place itself is at fault: a read-only mount, closed folders, a network, little room.

The advice is run in that same shell, as a person would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_cli.doctors import MOUNTS, PLAIN, READ_ONLY, Opened, needs_mounts, needs_plain, wrong
from tests.support.processes import works

pytestmark = [pytest.mark.usefixtures("healthy"), pytest.mark.slow]

_FIX = (
    """python -c 'import json, sys; print(next(one["fix"] for one in json.load(sys.stdin)["checks"] if one["fix"]))'"""
)
_FOLLOWED = f"""
set -e
look() {{ hermes doctor --json; }}
eval "$PLANT"
look > "$OUT/before" || true
eval "$({_FIX} < "$OUT/before")" >&2
look > "$OUT/after" || true
"""


def _followed(world: list[str], plant: str, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Plant a fault in a world of its own, run the first advice there; that finding, and what is wrong after it."""
    ran = subprocess.run(
        [*world, "bash", "-c", _FOLLOWED], capture_output=True, text=True, check=False, timeout=120,
        stdin=subprocess.DEVNULL, env={**os.environ, "PLANT": plant, "OUT": str(folder)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    before, after = (json.loads((folder / name).read_text()) for name in ("before", "after"))
    return wrong(before)[0], wrong(after)


@needs_mounts
@pytest.mark.skipif(os.getuid() != 0, reason="needs root: a file system can be made writable by its owner alone")
def test_a_read_only_mount(tmp_path: Path, healthy: Path) -> None:
    seen, left = _followed(MOUNTS, READ_ONLY, tmp_path)
    assert seen["check"] == "home" and seen["fix"].endswith(f"mount -o remount,rw {healthy}")
    assert left == []


@needs_plain
@pytest.mark.parametrize("closed", ['"$HERMES_HOME"', '"$HERMES_HOME"/state.db', '"$HERMES_HOME"/config.yaml'])
def test_what_is_closed_to_its_owner(closed: str, tmp_path: Path, healthy: Path) -> None:
    seen, left = _followed(PLAIN, f"chmod 400 {closed}", tmp_path)
    assert seen["fix"] == f"chmod -R u+rwX {healthy}"
    assert left == []


def test_no_home_can_be_made_there(tmp_path: Path) -> None:
    (tmp_path / "person").mkdir()
    plant = f"export HERMES_HOME=/proc/nowhere HOME={tmp_path / 'person'}"
    seen, left = _followed([], plant, tmp_path)
    assert seen["fix"] == "unset HERMES_HOME" and "it cannot be created" in seen["says"]
    assert [(one["check"], one["fix"]) for one in left] == [("home", "hermes setup"), ("model", "hermes setup")]


AS_NOBODY = ["setpriv", "--reuid", "65534", "--clear-groups"]
needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not works(*AS_NOBODY, sys.executable, "-c", "import hermes_cli"),
    reason="needs root, and a Python that every account can read: files of two accounts",
)


def _seen_by_nobody(where: Path, **environment: str) -> list[dict[str, Any]]:
    """What is wrong with the home, for an account without rights that uses this Python."""
    code = "import hermes_cli.main as m; raise SystemExit(m.main(['doctor', '--json']))"
    ran = subprocess.run(
        [*AS_NOBODY, sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert ran.stdout, ran.stderr
    return wrong(json.loads(ran.stdout))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every account can reach; those of pytest are closed."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hermes-test-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@needs_root
def test_an_account_without_a_home_folder_is_not_told_to_take_the_folder_above(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERMES_HOME")
    found = _seen_by_nobody(place, HOME=str(place / "nonexistent"))[0]
    home = place / "nonexistent/.hermes"
    assert found["check"] == "home" and found["fix"] == f"sudo install -d -m 700 -o 65534 {home}"
    subprocess.run(found["fix"].removeprefix("sudo "), shell=True, check=True)
    assert "home" not in [one["check"] for one in _seen_by_nobody(place, HOME=str(home.parent))]
    assert home.parent.stat().st_uid == place.stat().st_uid == 0


@needs_root
def test_a_home_of_somebody_else_is_left_to_them_and_files_of_root_are_taken_back(place: Path) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    os.chown(home, 65533, -1)
    found = _seen_by_nobody(place, HERMES_HOME=str(home))[0]
    assert found["check"] == "home" and not found["fix"]
    assert "sudo -u '#65533' hermes" in found["advice"]
    os.chown(home, 65534, -1)
    (home / "config.yaml").write_text("model: demo\n")
    (home / "config.yaml").chmod(0o600)
    found = _seen_by_nobody(place, HERMES_HOME=str(home))[0]
    assert found["check"] == "files" and found["fix"] == f"sudo chown -R 65534 {home}"


# The kernel's table of mounts, with another word in it, laid over the real one of the process that will be the doctor.
NETWORK = """
mkdir "$OUT/person" "$OUT/net"; export HOME="$OUT/person"
mount -t tmpfs none "$OUT/net"; cp -a "$HERMES_HOME" "$OUT/net/home"; export HERMES_HOME="$OUT/net/home"
look() { bash -c 'sed "s/ - tmpfs / - nfs4 /" /proc/$$/mountinfo > "$OUT/table"
    mount --bind "$OUT/table" /proc/$$/mountinfo; exec hermes doctor --json'; }
"""


@needs_mounts
def test_a_home_on_a_network(tmp_path: Path) -> None:
    seen, left = _followed(MOUNTS, NETWORK, tmp_path)
    assert seen["check"] == "file-system" and "nfs4" in seen["says"]
    assert left == []


@needs_mounts
def test_little_room_that_a_vacuum_gives_back(tmp_path: Path, healthy: Path) -> None:
    """A disk on which a gigabyte would be free, but for what was deleted from the database."""
    with Opened(healthy) as db:
        db.create_session("large", source="cli")
        for _ in range(16):
            db.append_message("large", "user", "x" * 1_000_000)
        db.delete_session("large")
    room = 1_000_000_000 + 8_000_000
    plant = f'''mkdir "$OUT/disk"; mount -t tmpfs -o size={room} none "$OUT/disk"
        cp -a "$HERMES_HOME"/. "$OUT/disk"; chmod 700 "$OUT/disk"; export HERMES_HOME="$OUT/disk"'''
    seen, left = _followed(MOUNTS, plant, tmp_path)
    assert seen["check"] == "disk" and seen["fix"] == "hermes state maintain --vacuum"
    assert left == []


@needs_mounts
def test_a_full_disk_is_not_said_to_be_helped_by_a_vacuum_that_needs_room(tmp_path: Path) -> None:
    plant = """mkdir "$OUT/disk"; mount -t tmpfs -o size=4m none "$OUT/disk"; chmod 700 "$OUT/disk"
        cp -a "$HERMES_HOME"/. "$OUT/disk"; head -c 9m /dev/zero > "$OUT/disk/fill"; export HERMES_HOME="$OUT/disk"
        hermes doctor --json; hermes -q hello --model demo"""
    ran = subprocess.run(
        [*MOUNTS, "bash", "-c", plant], capture_output=True, text=True, check=False, timeout=60,
        stdin=subprocess.DEVNULL, env={**os.environ, "OUT": str(tmp_path)},
    )  # fmt: skip
    found = wrong(json.loads(ran.stdout))[0]
    assert (found["check"], found["fix"], found["advice"]) == ("disk", "", "Delete files on that disk.")
    assert ran.stderr.splitlines()[-1].count("disk is full") == 1
