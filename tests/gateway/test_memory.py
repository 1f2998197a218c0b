"""The process keeps to few arenas of the C library, unless the operator says otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

THREADS = """
import ctypes, sys, threading
from gateway import memory
if "few" in sys.argv: memory.few_arenas()
ready = threading.Barrier(9)
def work():
    kept = bytearray(100_000)  # more than Python's own allocator takes
    ready.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads: one.start()
ready.wait()
for one in threads: one.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")


def arenas(*words: str, **environment: str) -> int:
    inherited = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    told = subprocess.run(
        [sys.executable, "-c", THREADS, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**inherited, **environment},
    )
    return told.stdout.count("<heap nr=")


def test_threads_share_two() -> None:
    assert arenas() > 4, "each thread has its own otherwise"
    assert arenas("few") == 2


def test_the_operator_has_the_last_word() -> None:
    assert arenas("few", MALLOC_ARENA_MAX="4") == 4
