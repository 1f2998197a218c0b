"""A database server whose machine is lost: nothing says goodbye, and nothing answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import works
from tests.support.stores import TestStores

pytestmark = pytest.mark.slow

NETWORK = ["unshare", "-n" if os.getuid() == 0 else "-rn"]
"""A command in front of another: it has a network of its own."""


@pytest.mark.skipif(not works(*NETWORK, "true"), reason="needs unshare, and the right to a network of one's own")
def test_a_write_is_repeated_when_a_server_that_was_lost_is_back(stores: TestStores) -> None:
    worker = Path(__file__).parent / "workers" / "lost_server.py"
    ran = subprocess.run(
        [*NETWORK, sys.executable, str(worker), stores.postgresql()], capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert (ran.stdout, ran.returncode) == ("kept\n", 0), ran.stderr
