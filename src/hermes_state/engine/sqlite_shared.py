"""The process's one engine for each SQLite file.

Two stores on one file share a writer, so they wait for each other in a queue instead of for SQLite's lock. A forked
child has the table but none of the connections in it: it opens its own.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hermes_config.limits import Limits
from hermes_state.engine.sqlite import SqliteEngine


class _Shared:
    """The process's one engine for each file, with how many stores use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engines: dict[tuple[str, str], tuple[SqliteEngine, int]] = {}

    def after_fork(self) -> None:
        self.lock = threading.Lock()
        for engine, _users in self.engines.values():
            engine.forget_parent()


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.after_fork)


def open_shared(path: Path, *, synchronous: str, limits: Limits | None = None) -> SqliteEngine:
    """The process's one engine for this file; give it back with `release`."""
    key = (os.path.realpath(path), synchronous)
    with _shared.lock:
        engine, users = _shared.engines.get(key, (None, 0))
        if engine is None or not path.exists():
            engine, users = SqliteEngine(path, synchronous=synchronous, limits=limits), 0
        _shared.engines[key] = (engine, users + 1)
        return engine


def open_in_this_process(path: Path) -> bool:
    """Whether a store here has the file open. Then nothing else here may: closing it would drop the store's locks."""
    real = os.path.realpath(path)
    with _shared.lock:
        return any(file == real for file, _synchronous in _shared.engines)


def release(engine: SqliteEngine) -> None:
    with _shared.lock:
        for key, (shared, users) in list(_shared.engines.items()):
            if shared is engine:
                if users > 1:
                    _shared.engines[key] = (engine, users - 1)
                    return
                del _shared.engines[key]
    engine.close()
