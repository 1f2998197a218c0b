"""Imports and calls plug-in code off the event loop, with a time limit.

Callbacks may block, so they run on a few daemon threads, and neither the loop's pool nor the end of the process waits
for them. If a callback exceeds its time, Hermes stops waiting but its thread continues; while it hangs, that callback
is not called again, so a plug-in holds at most one thread per callback. A folder is imported as
`hermes_plugins.<slug>`, so that its files can use relative imports.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import inspect
import logging
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

from hermes_cli.plugins.api import PluginContext, PluginError
from hermes_cli.plugins.discovery import PACKAGE, FoundPlugin, truthy

log = logging.getLogger("hermes.plugins")

# Bound at import: a test of the specification replaces threading.Thread for the whole process.
_Thread = threading.Thread


class Workers:
    """A thread pool that starts a thread only when none is idle, up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0

    def submit(self, fn: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, fn))
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._most:
                self._threads += 1
                _Thread(target=self._work, name=f"hermes-plugin-{self._threads}", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            future, fn = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn())
                except BaseException as error:  # noqa: BLE001 - handed to whoever waits, SystemExit too
                    future.set_exception(error)
            with self._lock:
                self._idle += 1


def start(workers: Workers, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """`fn(*args, **kwargs)` on a thread, in a copy of this context: it sees the turn's identity."""
    context = contextvars.copy_context()
    return workers.submit(functools.partial(context.run, functools.partial(fn, *args, **kwargs)))


async def finish(future: Future[Any], seconds: float) -> Any:
    """Return the result of a started call; an awaitable result is awaited on this loop. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        value = await asyncio.wrap_future(future)
        return await value if inspect.isawaitable(value) else value


def settle(value: Any, seconds: float, workers: Workers) -> Any:
    """Return a value; run an awaitable to its end, even inside a running loop. Raises TimeoutError."""
    if not inspect.isawaitable(value):
        return value

    async def awaited() -> Any:
        async with asyncio.timeout(seconds):
            return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited())
    return start(workers, asyncio.run, awaited()).result(seconds + 1)


def complain(error: BaseException, *, plugin: str, action: str, **facts: Any) -> None:
    """Log a plug-in's error: only its kind and location, since its text may quote private data."""
    log.error(
        "plug-in %s: %s (%s)",
        plugin,
        action.replace("_", " "),
        where(error),
        extra={"action": action, "plugin": plugin, **facts},
        exc_info=error if truthy("HERMES_PLUGINS_DEBUG") else None,
    )


def where(error: BaseException) -> str:
    """`KeyError at /path/to/file.py:12`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}{place}"


def import_and_register(found: FoundPlugin, context: PluginContext) -> None:
    module = _import(found)
    register = vars(module).get("register") if isinstance(module, ModuleType) else None
    if not callable(register):
        raise PluginError("it has no function register(ctx)")
    register(context)


def _import(found: FoundPlugin) -> Any:
    if found.entry_point is not None:
        return found.entry_point.load()
    assert found.folder is not None  # a plug-in comes from a package or from a folder
    name = found.module_name
    if name in sys.modules:
        raise PluginError(f"another plug-in is loaded as {name}", hint="Rename one of them.")
    parent = sys.modules.get(PACKAGE)
    if parent is None:
        parent = sys.modules[PACKAGE] = ModuleType(PACKAGE)
        parent.__path__ = []
    return import_file(name, found.folder / "__init__.py")


def import_file(name: str, file: Path) -> ModuleType:
    """Import a file as the package `name`, whose other files are those in its folder."""
    from importlib import util

    spec = util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
    assert spec is not None and spec.loader is not None  # a path that ends in .py always has one
    importlib.invalidate_caches()
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for loaded in [other for other in sys.modules if other == name or other.startswith(f"{name}.")]:
            del sys.modules[loaded]
        raise
    return module


def said(error: BaseException) -> str:
    """An error of a plug-in as one line for `hermes plugins list`."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, PluginError) else f"{where(error)}{f': {text}' if text else ''}"


def forget_modules() -> None:
    """Forget imported plug-in modules, so that the next import runs their code again."""
    for module in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
