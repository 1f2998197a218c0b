"""A disk that takes its time: every flush of this process and its children takes longer, floors and gateway alike.

On a virtual machine a flush may cost next to nothing, and then a bench compares processor time alone. `slow_disk` puts
a small library, compiled here, in front of `fdatasync` and `fsync`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int slowly(const char *name, int fd) {
    struct timespec pause = {0, MICROSECONDS * 1000L};
    nanosleep(&pause, 0);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fdatasync(int fd) { return slowly("fdatasync", fd); }
int fsync(int fd) { return slowly("fsync", fd); }
"""


@contextmanager
def slow_disk(milliseconds: float, folder: Path) -> Iterator[None]:
    """Children that are started inside the block flush this much more slowly; 0: as fast as the disk is."""
    if milliseconds <= 0:
        yield
        return
    library = folder / "slow_disk.so"
    define = f"-DMICROSECONDS={round(milliseconds * 1000)}"
    compiler = ["cc", "-shared", "-fPIC", "-O2", define, "-x", "c", "-", "-o", str(library), "-ldl"]
    try:
        subprocess.run(compiler, input=SOURCE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"bench: --flush-ms needs a C compiler: {error}") from None
    os.environ["LD_PRELOAD"] = str(library)
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"]
