"""Plug-ins are found where they may be, loaded when the person says so, and cost only themselves when they fail."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import context, hooks
from hermes_cli import plugins
from hermes_config import config
from hermes_state.ids import SessionId
from hermes_testing.plugins import PluginHome, plugin_home

HOOK = """
def register(ctx):
    ctx.register_hook("post_llm_call", lambda **facts: ("{0}", facts))
"""


@pytest.fixture
def plugged(home: Path) -> Iterator[PluginHome]:
    with plugin_home(home) as made:
        yield made


def states(manager: plugins.PluginManager) -> dict[str, str]:
    return {key: row.state for key, row in manager.plugins.items()}


def answers(hook: str = "post_llm_call", **facts: Any) -> list[Any]:
    return [answer[0] for answer in plugins.invoke_hook(hook, **facts)]


class TestWhichAreLoaded:
    def test_nothing_runs_unless_it_is_named(self, plugged: PluginHome) -> None:
        plugged.add("one", HOOK.format("one"))
        plugged.add("tools/two", HOOK.format("two"))
        assert states(plugged.load()) == {"one": "off", "tools/two": "off"} and not plugins.has_hook("post_llm_call")
        assert "plugins enable one" in plugins.get_plugin_manager().plugins["one"].reason
        assert states(plugged.load("one", "two")) == {"one": "loaded", "tools/two": "loaded"}
        assert answers() == ["one", "two"]

    def test_disabled_wins(self, plugged: PluginHome) -> None:
        plugged.add("one", HOOK.format("one"))
        config.set_value("plugins.disabled", ["one"])
        manager = plugged.load("one")
        assert states(manager) == {"one": "off"} and "plugins.disabled" in manager.plugins["one"].reason

    def test_safe_mode_starts_without_any(self, plugged: PluginHome, monkeypatch: pytest.MonkeyPatch) -> None:
        plugged.add("one", HOOK.format("one"))
        monkeypatch.setenv("HERMES_SAFE_MODE", "1")
        assert plugged.load("one").plugins == {} and plugins.invoke_hook("post_llm_call") == []

    def test_a_cloned_project_is_a_stranger(
        self, plugged: PluginHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugged.add("one", HOOK.format("project"), root=tmp_path / ".hermes" / "plugins")
        monkeypatch.chdir(tmp_path)
        assert plugged.load("project:one").missing == ["project:one"]
        monkeypatch.setenv("HERMES_ENABLE_PROJECT_PLUGINS", "1")
        assert states(plugged.load("one")) == {"project:one": "off"}, "its name alone is a plug-in of one's own"
        assert states(plugged.load("project:one")) == {"project:one": "loaded"}

    def test_a_project_does_not_replace_an_enabled_plugin(
        self, plugged: PluginHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugged.add("one", HOOK.format("mine"))
        plugged.add("one", HOOK.format("project"), root=tmp_path / ".hermes" / "plugins")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HERMES_ENABLE_PROJECT_PLUGINS", "1")
        assert states(plugged.load("one")) == {"one": "loaded", "project:one": "off"}
        assert answers() == ["mine"]
        plugged.load("one", "project:one")
        assert answers() == ["mine", "project"]

    def test_a_package_of_the_same_name_wins_over_a_folder(
        self, plugged: PluginHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugged.add("packed", HOOK.format("user"))
        plugged.load("packed")
        assert answers() == ["user"]
        info = tmp_path / "site" / "packed_plugin-2.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packed-plugin\nVersion: 2.0\n")
        (info / "entry_points.txt").write_text("[hermes_agent.plugins]\npacked = packed_plugin\n")
        (tmp_path / "site" / "packed_plugin.py").write_text(HOOK.format("packed"))
        monkeypatch.syspath_prepend(tmp_path / "site")
        plugged.load("packed")
        assert answers() == ["packed"]
        del sys.modules["packed_plugin"]

    def test_an_installed_package(self, plugged: PluginHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        info = tmp_path / "site" / "packed_plugin-2.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packed-plugin\nVersion: 2.0\nSummary: Packed.\n")
        (info / "entry_points.txt").write_text("[hermes_agent.plugins]\npacked = packed_plugin\n")
        (tmp_path / "site" / "packed_plugin.py").write_text(HOOK.format("packed"))
        monkeypatch.syspath_prepend(tmp_path / "site")
        row = plugged.load("packed").plugins["packed"]
        assert (row.state, row.found.source, row.found.manifest.version) == ("loaded", "package", "2.0")
        assert answers() == ["packed"]
        del sys.modules["packed_plugin"]

    def test_a_plug_in_of_any_kind_is_loaded_when_it_is_enabled(self, plugged: PluginHome) -> None:
        """Whatever `kind` a manifest of hermes-agent names."""
        platform = "def register(ctx):\n    ctx.register_platform('irc', title='IRC')\n"
        plugged.add("irc", platform, manifest="name: irc\nkind: platform")
        plugged.add("web", HOOK.format("web"), manifest="name: web\nkind: backend")
        plugged.add("mem", HOOK.format("mem"), manifest="name: mem\nkind: exclusive")
        manager = plugged.load("irc", "mem")
        assert states(manager) == {"irc": "loaded", "web": "off", "mem": "loaded"}
        assert manager.registries.platforms["irc"].fields == {"title": "IRC"}
        assert manager.plugins["mem"].found.manifest.kind == "exclusive"

    def test_a_hook_that_nothing_calls_is_noted(self, plugged: PluginHome) -> None:
        plugged.add("sub", "def register(ctx):\n    ctx.register_hook('pre_verify', lambda **facts: None)\n")
        manager = plugged.load("sub")
        assert "never calls" in manager.plugins["sub"].notes[0]

    def test_a_second_discovery_does_nothing(self, plugged: PluginHome) -> None:
        plugged.add("one", HOOK.format("one"))
        plugged.load("one")
        plugins.discover_plugins()
        assert answers() == ["one"]

    def test_a_plug_in_of_several_files_and_its_settings(self, plugged: PluginHome) -> None:
        folder = plugged.add(
            "my-plugin",
            """
            from . import inner
            def register(ctx):
                ctx.register_command("say", lambda args: f"{inner.WORD} {ctx.settings['name']} {ctx.profile_name}")
            """,
        )
        (folder / "inner.py").write_text("WORD = 'hello'\n")
        config.set_value("plugins.entries.my-plugin.name", "Ada")
        plugged.load("my-plugin")
        assert plugins.get_plugin_commands()["say"].handler("") == "hello Ada default"
        assert "hermes_plugins.my_plugin.inner" in sys.modules
        plugged.load()


BROKEN = {
    "syntax": "def register(:",
    "import": "import no_such_module_anywhere",
    "raises": "raise RuntimeError('sk-secret')",
    "exits": "import sys; sys.exit(3)",
    "no_register": "x = 1",
    "register": "def register(ctx):\n    ctx.register_command('x', id)\n    ctx.register_hook('a', id)\n    1 / 0",
    "bad_name": "def register(ctx):\n    ctx.register_tool('no spaces', 't', {}, print)",
    "not_callable": "def register(ctx):\n    ctx.register_hook('post_llm_call', 5)",
    "unknown_api": "def register(ctx):\n    ctx.register_teapot()",
    "override": "def register(ctx):\n    ctx.register_tool('terminal', 't', {}, print, override=True)",
}


class TestFailing:
    @pytest.mark.parametrize("how", BROKEN)
    def test_it_costs_only_itself(self, plugged: PluginHome, how: str) -> None:
        plugged.add("bad", BROKEN[how])
        plugged.add("good", HOOK.format("good"))
        manager = plugged.load("bad", "good")
        assert states(manager) == {"bad": "failed", "good": "loaded"}
        assert manager.plugins["bad"].error and "\n" not in manager.plugins["bad"].reason
        assert answers() == ["good"] and not plugins.has_hook("a")
        assert not plugins.get_plugin_commands() and not plugins.get_plugin_tools()

    def test_one_that_hangs_does_not_hang_the_start(self, plugged: PluginHome) -> None:
        plugged.add(
            "slow",
            """
            import threading
            gate, done = threading.Event(), threading.Event()
            def register(ctx):
                try:
                    gate.wait(30)
                    ctx.register_command("late", print)
                finally:
                    done.set()
            """,
        )
        plugged.add("good", HOOK.format("good"))
        config.set_value("limits.plugin_start_ms", 100)
        manager = plugged.load("slow", "good")
        assert states(manager) == {"good": "loaded", "slow": "failed"} and "0.1 s" in manager.plugins["slow"].reason
        module: Any = sys.modules["hermes_plugins.slow"]
        module.gate.set()
        assert module.done.wait(10)
        assert not plugins.get_plugin_commands(), "what it registers when nobody waits any more counts for nothing"

    @pytest.mark.parametrize("manifest", ["name: [x", "- a\n- list", "\x00", "name: ../../etc", "x: " + "y" * 70_000])
    def test_a_broken_manifest(self, plugged: PluginHome, manifest: str) -> None:
        plugged.add("bad", HOOK.format("bad"), manifest=manifest)
        row = plugged.load("bad").plugins["bad"]
        assert row.state == "failed" and row.reason and not plugins.has_hook("post_llm_call")

    def test_a_manifest_without_code(self, plugged: PluginHome) -> None:
        (plugged.add("bad", "") / "__init__.py").unlink()
        assert "__init__.py" in plugged.load("bad").plugins["bad"].reason

    def test_a_broken_configuration_loads_nothing_and_raises_nothing(self, plugged: PluginHome) -> None:
        plugged.add("one", HOOK.format("one"))
        (plugged.home / "config.yaml").write_text("plugins: {enabled: {one: 1}}\n")
        assert plugged.load().plugins == {}
        (plugged.home / "config.yaml").write_text("plugins: [\n")
        assert plugged.load().plugins == {}

    def test_two_of_one_name(self, plugged: PluginHome) -> None:
        plugged.add("a-b", HOOK.format("dash"))
        plugged.add("a_b", HOOK.format("line"))
        manager = plugged.load("a-b", "a_b")
        assert states(manager) == {"a-b": "loaded", "a_b": "failed"} and "Rename" in manager.plugins["a_b"].reason


class TestHooks:
    def test_answers_in_order_without_none_and_with_the_schema_version(self, plugged: PluginHome) -> None:
        plugged.add(
            "one",
            """
            def register(ctx):
                ctx.register_hook("pre_llm_call", lambda **facts: facts)
                ctx.register_hook("pre_llm_call", lambda **facts: None)
                ctx.register_hook("pre_llm_call", lambda **facts: "last")
            """,
        )
        plugged.load("one")
        first, last = plugins.invoke_hook("pre_llm_call", session_id="s")
        assert first == {"session_id": "s", "telemetry_schema_version": "hermes.observer.v1"} and last == "last"
        assert plugins.has_hook("pre_llm_call") and not plugins.has_hook("post_llm_call")
        assert plugins.invoke_hook("post_llm_call", x=1) == []

    def test_one_that_raises_is_noted_without_its_words_and_skipped(
        self, plugged: PluginHome, caplog: pytest.LogCaptureFixture
    ) -> None:
        plugged.add(
            "one",
            """
            import sys
            def bad(**facts): raise ValueError("the key is sk-canary")
            def register(ctx):
                ctx.register_hook("pre_llm_call", bad)
                ctx.register_hook("pre_llm_call", lambda **facts: sys.exit())
                ctx.register_hook("pre_llm_call", lambda needs: "never called with keywords")
                ctx.register_hook("pre_llm_call", lambda **facts: "fine")
            """,
        )
        plugged.load("one")
        with caplog.at_level(logging.DEBUG):
            assert plugins.invoke_hook("pre_llm_call") == ["fine"]
            assert asyncio.run(hooks.fire("pre_llm_call")) == ["fine"]
        assert "ValueError" in caplog.text and "sk-canary" not in caplog.text

    def test_coroutine_functions_are_awaited_wherever_the_hook_is_called_from(self, plugged: PluginHome) -> None:
        plugged.add(
            "one",
            """
            import asyncio
            async def slow(**facts):
                await asyncio.sleep(0)
                return facts["n"]
            def register(ctx):
                ctx.register_hook("pre_llm_call", slow)
            """,
        )
        plugged.load("one")

        async def on_a_loop() -> list[Any]:
            return [plugins.invoke_hook("pre_llm_call", n=2), await hooks.fire("pre_llm_call", n=3)]

        assert plugins.invoke_hook("pre_llm_call", n=1) == [1]
        assert asyncio.run(on_a_loop()) == [[2], [3]]

    def test_one_that_hangs_is_given_up_and_left_alone_until_it_is_back(self, plugged: PluginHome) -> None:
        plugged.add(
            "one",
            """
            import threading
            gate, calls = threading.Event(), []
            def stuck(**facts):
                calls.append(1)
                gate.wait(10)
            def register(ctx):
                ctx.register_hook("pre_llm_call", stuck)
                ctx.register_hook("pre_llm_call", lambda **facts: "fine")
            """,
        )
        manager = plugged.load("one")
        module: Any = sys.modules["hermes_plugins.one"]

        manager.limits = manager.limits.changed(hook_ms=2_000)  # a busy machine takes its time for the other one

        async def several() -> list[list[Any]]:
            return [await hooks.fire("pre_llm_call") for _ in range(3)]

        assert asyncio.run(several()) == [[], ["fine"], ["fine"]] and len(module.calls) == 1
        module.gate.set()
        deadline = time.monotonic() + 5
        while len(module.calls) == 1 and time.monotonic() < deadline:
            asyncio.run(hooks.fire("pre_llm_call"))
        assert len(module.calls) == 2

    def test_the_loop_goes_on_while_a_callback_blocks_and_the_turn_is_known_there(self, plugged: PluginHome) -> None:
        plugged.add(
            "one",
            """
            import threading
            from hermes_agent.context import get_session_env
            gate = threading.Event()
            def slow(**facts):
                return get_session_env("HERMES_SESSION_ID"), gate.wait(10)
            def register(ctx):
                ctx.register_hook("pre_llm_call", slow)
            """,
        )
        plugged.load("one")
        module: Any = sys.modules["hermes_plugins.one"]

        async def turn() -> list[Any]:
            asyncio.get_running_loop().call_later(0.05, module.gate.set)
            with context.bind(context.TurnIdentity(), context.CurrentSession(SessionId("s1"))):
                return await hooks.fire("pre_llm_call")

        assert asyncio.run(turn()) == [("s1", True)], "the loop set the gate while the callback waited for it"

    def test_many_callers_at_once_share_few_threads(self, plugged: PluginHome) -> None:
        plugged.add("one", "import time\ndef register(ctx):\n    ctx.register_hook('a', lambda **f: time.sleep(0.01))")
        plugged.load("one")

        async def many() -> None:
            await asyncio.gather(*(hooks.fire("a") for _ in range(300)))

        asyncio.run(many())
        assert sum(thread.name.startswith("hermes-plugin") for thread in threading.enumerate()) <= 32

    def test_an_unknown_hook_is_kept_and_noted(self, plugged: PluginHome) -> None:
        plugged.add("one", "def register(ctx):\n    ctx.register_hook('on_full_moon', lambda **f: 'howl')")
        manager = plugged.load("one")
        assert "on_full_moon" in manager.plugins["one"].notes[0] and plugins.invoke_hook("on_full_moon") == ["howl"]


def test_what_a_pre_tool_hook_decides() -> None:
    decide = plugins.resolve_pre_tool_block
    assert decide([]) is None and decide(["block", {"action": "dance"}, {}, None]) is None
    block, approve = {"action": "block", "message": "no"}, {"action": "approve"}
    assert decide([{"x": 1}, block, approve]) == plugins.PreToolDecision("block", "no")
    assert decide([approve, block]) == plugins.PreToolDecision("approve")
    silent = decide([{"action": "block", "message": 7}])
    assert silent is not None and silent.message


class TestRegistries:
    def test_tools_commands_and_skills(self, plugged: PluginHome) -> None:
        folder = plugged.add(
            "one",
            """
            def register(ctx):
                ctx.register_tool("count", "math", {"description": "Counts."}, lambda args, **f: 1, requires_env=["K"])
                ctx.register_command("/Hello", lambda args: args.upper(), "says hello", "[name]")
                ctx.register_cli_command("greet", "greet", lambda p: None, lambda a: 0)
                ctx.register_skill("cook", "skills/cook", "how to cook")
            """,
            manifest="name: one\nrequires_env:\n- NOT_SET_ANYWHERE\n- name: PATH\n",
        )
        (folder / "skills" / "cook").mkdir(parents=True)
        manager = plugged.load("one")
        assert manager.plugins["one"].notes == ["needs NOT_SET_ANYWHERE, which is not set"]
        (tool,) = plugins.get_plugin_tools()
        assert (tool.name, tool.toolset, tool.description, tool.requires_env) == ("count", "math", "Counts.", ("K",))
        command = plugins.get_plugin_commands()["hello"]
        assert (command.description, command.args_hint, command.plugin) == ("says hello", "[name]", "one")
        assert command.handler("x") == "X" and list(plugins.get_plugin_commands()) == ["hello"]
        assert plugins.get_plugin_command_handler("hello") is command.handler
        assert plugins.get_plugin_command_handler("bye") is None
        assert list(plugins.get_plugin_cli_commands()) == ["greet"]
        (skill,) = plugins.get_plugin_skills()
        assert skill.name == "one:cook" and skill.path.is_dir()

    def test_the_first_of_a_name_keeps_it(self, plugged: PluginHome) -> None:
        for name in ("a", "b"):
            plugged.add(name, f"def register(ctx):\n    ctx.register_command('x', lambda args: '{name}')")
        manager = plugged.load("a", "b")
        assert plugins.get_plugin_commands()["x"].plugin == "a" and "a has one" in manager.plugins["b"].notes[0]

    def test_a_tool_is_replaced_only_where_the_person_allows_it(self, plugged: PluginHome) -> None:
        plugged.add("one", "def register(ctx):\n    ctx.register_tool('terminal', 't', {}, print, override=True)")
        assert "allow_tool_override" in plugged.load("one").plugins["one"].reason
        config.set_value("plugins.entries.one.allow_tool_override", True)
        assert plugged.load("one").plugins["one"].state == "loaded" and plugins.get_plugin_tools()[0].override
        assert issubclass(plugins.ToolOverrideDenied, PermissionError)

    def test_what_a_command_returns_is_settled(self, plugged: PluginHome) -> None:
        async def later() -> str:
            return "done"

        async def forever() -> None:
            await asyncio.sleep(60)

        async def on_a_loop() -> Any:
            return plugins.resolve_plugin_command_result(later())

        assert plugins.resolve_plugin_command_result("at once") == "at once"
        assert plugins.resolve_plugin_command_result(later()) == "done"
        assert asyncio.run(on_a_loop()) == "done"
        config.set_value("limits.plugin_command_ms", 100)
        plugged.load()
        with pytest.raises(TimeoutError):
            plugins.resolve_plugin_command_result(forever())
