"""Hooks of a home: found, told, isolated."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.hooks import HookRegistry, hook_folders
from hermes_config.limits import DEFAULTS


def hook(home: Path, name: str, events: str, code: str) -> None:
    folder = home / "hooks" / name
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text(f"name: {name}\ndescription: of {name}\nevents: {events}\n")
    (folder / "handler.py").write_text(code)


def loaded(home: Path, **limits: int) -> HookRegistry:
    names = [folder.name for folder in hook_folders(home)]
    registry = HookRegistry(home, DEFAULTS.changed(**limits), enabled=names)
    registry.discover_and_load()
    return registry


def test_a_hook_is_told_its_events_and_answers(tmp_path: Path) -> None:
    hook(tmp_path, "one", "[session:start]", "def handle(event, ctx):\n    return event, ctx['platform']\n")
    hook(tmp_path, "two", "['session:*']", "async def handle(event, ctx):\n    return 'any'\n")
    registry = loaded(tmp_path)
    assert asyncio.run(registry.emit_collect("session:start", {"platform": "telegram"})) == [
        ("session:start", "telegram"),
        "any",
    ]
    assert asyncio.run(registry.emit_collect("session:end", {"platform": "telegram"})) == ["any"]
    assert asyncio.run(registry.emit_collect("agent:start", {})) == []
    assert [(one["name"], one["events"]) for one in registry.loaded_hooks] == [
        ("one", ["session:start"]),
        ("two", ["session:*"]),
    ]


def test_what_is_broken_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook(tmp_path, "a-no-events", "[]", "def handle(event, ctx): ...\n")
    hook(tmp_path, "b-raises", "[x:y]", "raise RuntimeError('at import')\n")
    hook(tmp_path, "c-no-handle", "[x:y]", "value = 1\n")
    hook(tmp_path, "d-bad-yaml", "[x:y", "def handle(event, ctx): ...\n")
    (tmp_path / "hooks" / "e-empty").mkdir()
    hook(tmp_path, "f-good", "[x:y]", "def handle(event, ctx):\n    return 1\n")
    registry = loaded(tmp_path)
    assert [one["name"] for one in registry.loaded_hooks] == ["f-good"]
    for name in ("a-no-events", "b-raises", "c-no-handle", "d-bad-yaml", "e-empty"):
        assert name in caplog.text
    assert asyncio.run(registry.emit_collect("x:y")) == [1]


def test_a_hook_that_raises_or_hangs_costs_its_own_call_only(tmp_path: Path) -> None:
    hook(tmp_path, "a-raises", "[x:y]", "def handle(event, ctx):\n    raise SystemExit(3)\n")
    hook(tmp_path, "b-hangs", "[x:y]", "import time\ndef handle(event, ctx):\n    time.sleep(60)\n")
    hook(tmp_path, "c-spoils", "[x:y]", "def handle(event, ctx):\n    ctx.clear()\n")
    hook(tmp_path, "d-good", "[x:y]", "def handle(event, ctx):\n    return ctx['a']\n")
    registry = loaded(tmp_path, hook_ms=1_000)
    began = time.monotonic()
    assert asyncio.run(registry.emit_collect("x:y", {"a": 1})) == [1]
    assert time.monotonic() - began < 30


def test_an_event_that_is_never_called_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook(tmp_path, "one", "[agent:step, agent:end, 'command:*']", "def handle(event, ctx): ...\n")
    loaded(tmp_path)
    assert "the hook one listens to agent:step, which Hermes never calls" in caplog.text


def test_only_hooks_that_the_configuration_names_are_imported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook(tmp_path, "named", "[x:y]", "def handle(event, ctx):\n    return 'named'\n")
    hook(tmp_path, "not-named", "[x:y]", f"open({str(tmp_path / 'ran')!r}, 'w')\ndef handle(event, ctx): ...\n")
    registry = HookRegistry(tmp_path, enabled=["named"])
    registry.discover_and_load()
    assert asyncio.run(registry.emit_collect("x:y")) == ["named"]
    assert not (tmp_path / "ran").exists()
    assert "hermes config set hooks.enabled '[named, not-named]'" in caplog.text
