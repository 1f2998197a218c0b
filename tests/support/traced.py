"""Run one of our programs and note which of our modules call which: `python traced.py OUT MODULE ARG…`.

SIGUSR1 starts the recording, SIGUSR2 writes what was seen to OUT: the modules in the order in which they were first
entered, and every call from one module into another. Imports and constructors do not count.
"""

from __future__ import annotations

import inspect
import json
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

_SOURCE = str(Path(__file__).parents[2] / "src") + os.sep


class Recorder:
    def __init__(self, out: Path) -> None:
        self._out = out
        self._on = False
        self._modules: dict[str, str] = {}
        self._entered: dict[str, str] = {}
        self._calls: dict[tuple[str, str], str] = {}

    def start(self, *_: Any) -> None:
        self._on = True

    def write(self, *_: Any) -> None:
        self._on = False
        calls = [[caller, called, what] for (caller, called), what in self._calls.items()]
        draft = self._out.with_suffix(".draft")
        draft.write_text(json.dumps({"entered": list(self._entered.items()), "calls": calls}), encoding="utf-8")
        draft.rename(self._out)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._on or event != "call":
            return
        module = self._module(frame)
        if not module:
            return
        if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # the body of a module or class: somebody imports it
        name = frame.f_code.co_qualname
        if frame.f_code.co_name in ("__init__", "__post_init__"):
            return  # a constructor puts parts together and decides nothing
        caller = frame.f_back
        while caller is not None and not (source := self._module(caller)):
            caller = caller.f_back
        if caller is not None and not caller.f_code.co_flags & inspect.CO_OPTIMIZED:
            return
        self._entered.setdefault(module, name)
        if caller is not None and source != module:
            self._calls.setdefault((source, module), f"{caller.f_code.co_qualname} → {name}")

    def _module(self, frame: FrameType) -> str:
        path = frame.f_code.co_filename
        known = self._modules.get(path)
        if known is None:
            known = ""
            if path.startswith(_SOURCE):
                known = path[len(_SOURCE) :].removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__")
            self._modules[path] = known
        return known


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, recorder.start)
    signal.signal(signal.SIGUSR2, recorder.write)
    if os.environ.get("TRACE_FROM_START"):
        recorder.start()
    sys.argv = sys.argv[2:]
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
