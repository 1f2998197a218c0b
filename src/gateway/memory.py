"""How the gateway's process keeps its memory small over weeks.

glibc gives each thread an arena of its own, up to eight a core, and hardly ever gives back what was freed in one. Each
thread that once read a long conversation keeps the memory that took, and which thread reads the next one is chance: so
the process grows for hours towards the sum of all their peaks (measured: 10 MB freed and kept, of 82 in all). Python
has few allocations for threads to get in each other's way, so two arenas do as well, and share what is free.

Elsewhere (musl, macOS, Windows) there is nothing of the kind to set. `MALLOC_ARENA_MAX` in the environment wins.
"""

from __future__ import annotations

import os
import sys

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 2


def few_arenas() -> None:
    """Before the first thread is started; an arena that is there already stays."""
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
    except AttributeError:  # a C library without it has no such arenas
        return
