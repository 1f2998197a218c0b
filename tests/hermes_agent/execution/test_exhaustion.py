"""What a command leaves, uses up or holds up: Hermes goes on at once, and nothing of it stays on the machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from contextlib import closing
from pathlib import Path

import pytest

from hermes_agent.execution import supervisor
from hermes_agent.execution.executor import Executor
from hermes_config.config import of as config_of

from .test_executor import World, world

pytestmark = pytest.mark.slow
__all__ = ["world"]


def test_a_flood_of_output_leaves_other_conversations_their_turn(world: World) -> None:
    """A command that prints faster than Hermes reads must not be read to its end in one go."""
    together = [0, 0]

    def take(data: bytes) -> None:
        sum(data)  # slower than the command prints
        together[0] += len(data)
        together[1] = max(together)

    async def go() -> int:
        held = Executor(world.home, config_of(world.home, world.config), world.limits)
        command = world.command("head -c 20000000 /dev/zero")
        async with held.run(command, workspace=world.workspace, on_output=take) as child:
            ended = asyncio.ensure_future(child.exited())
            while not ended.done():
                await asyncio.sleep(0)
                together[0] = 0
            return ended.result()

    assert asyncio.run(go()) == 0
    assert 0 < together[1] <= 1 << 16


@pytest.mark.parametrize("world", ["landlock"], indirect=True)  # bubblewrap's is in memory
def test_the_scratch_folder_goes_with_its_command_however_deep_or_closed(world: World) -> None:
    deep = "import os\nos.chdir(os.environ['TMPDIR'])\nfor n in range(1500): os.mkdir('d'); os.chdir('d')"
    (world.workspace / "deep.py").write_text(deep)
    link = f"ln -s {world.workspace} $TMPDIR/link; mkdir -p $TMPDIR/closed/within; chmod 0 $TMPDIR/closed"
    ended = world.run(f"python3 deep.py; {link}; echo $TMPDIR")
    assert (ended.code, Path(ended.output.strip()).exists()) == (0, False)
    assert (world.workspace / "deep.py").exists()


def test_every_disk_that_a_command_can_fill_is_watched(tmp_path: Path) -> None:
    other = Path("/dev/shm") / f"hermes-test-{os.getpid()}"
    if not other.parent.is_dir() or other.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second disk here")
    folder = os.open(tmp_path, os.O_PATH)
    other.mkdir()
    try:
        with closing(socket.socket()) as hermes:
            request = {"limits": {"disk_reserve": 1 << 60}, "disks": [str(tmp_path), str(other)]}
            keeper = supervisor._Keeper(request, hermes, -1, folder)
            keeper._disks, keeper._free = keeper._disks[1:], keeper._free[1:]  # others use the first one, too
            assert keeper._disks == [str(other)]
            (other / "big").write_bytes(bytes(8 << 20))
            assert keeper._over_limit() == "disk"
    finally:
        os.close(folder)
        shutil.rmtree(other)
