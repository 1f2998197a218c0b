"""A platform is known before its library is imported, and what is missing is said."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Platform, PlatformConfig
from gateway.platforms import registry
from gateway.platforms import telegram as telegram_folder
from gateway.platforms.telegram.adapter import TelegramAdapter

pytestmark = pytest.mark.slow


def test_the_descriptor_needs_no_library() -> None:
    code = (
        "import sys; sys.modules['telegram'] = sys.modules['httpx'] = sys.modules['markdown_it'] = None\n"
        "from gateway.platforms import registry\n"
        "about = registry.known()['telegram']\n"
        "print(about.title, about.secrets)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "Telegram ('TELEGRAM_BOT_TOKEN',)"


def test_it_uses_nothing_of_ours_but_the_adapters_contract() -> None:
    """So whatever Telegram does, a plug-in can do."""
    allowed = (
        "gateway.platforms.base",
        "gateway.platforms.telegram",
        "gateway.platforms.registry",
        "hermes_config.errors",
        "hermes_cli.plugins",
    )
    folder = Path(telegram_folder.__file__).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module == "gateway.session":
                assert [name.name for name in node.names] == ["SessionSource"], "the type of a field of the contract"
            elif module and module.startswith(("gateway", "hermes_")):
                assert module.startswith(allowed), f"{file.name} imports {module}"


def test_an_adapter_is_made_from_it() -> None:
    adapter = registry.make(Platform.TELEGRAM, PlatformConfig(enabled=True, token="1:a"))
    assert isinstance(adapter, TelegramAdapter)
    assert adapter.health().problem == "not connected yet"


def test_a_missing_package_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.Descriptor, "missing_packages", lambda self: ("telegram",))
    with pytest.raises(registry.PlatformUnusable, match=r"needs telegram\. .*pip install '.*\[telegram\]'"):
        registry.make(Platform.TELEGRAM, PlatformConfig())


def test_an_unknown_platform_is_named() -> None:
    with pytest.raises(registry.PlatformUnusable, match="no platform 'pigeon'"):
        registry.descriptor("pigeon")


def test_a_plug_ins_platform_is_one_like_ours() -> None:
    from hermes_cli.plugins.api import PluginPlatform

    fields: dict[str, Any] = {
        "adapter": "pigeons:Adapter",
        "fields": ({"key": "token", "env": "PIGEON_TOKEN", "help": "x", "secret": True},),
    }
    made = registry._described(PluginPlatform("post", "pigeon", fields, "post"))
    assert (made.title, made.fields[0].secret) == ("pigeon", True)
    for wrong in ({"adapter": "x:Y", "wings": 2}, {"adapter": "x:Y", "fields": ({"wings": 2},)}, {}):
        with pytest.raises(registry.PlatformUnusable, match="pigeon"):
            registry._described(PluginPlatform("post", "pigeon", wrong, "post"))
