"""A home with plug-ins in it, for tests of plug-ins and of what calls them.

    with plugin_home(home) as plugged:
        plugged.copy(Path("my_plugin"))
        plugged.load("my_plugin")
        assert plugins.invoke_hook("pre_llm_call", user_message="hi") == [...]

Plug-ins belong to the process, so leaving the block unloads them all.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_cli import plugins
from hermes_config import config


class PluginHome:
    """Puts plug-ins into a home and loads them as a surface does when it starts."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def add(self, name: str, code: str, *, manifest: str = "", root: Path | None = None) -> Path:
        """A plug-in from the text of its `__init__.py`; `name` may be `category/name`."""
        folder = (root or self.home / "plugins") / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(textwrap.dedent(code), encoding="utf-8")
        (folder / "plugin.yaml").write_text(manifest or f"name: {folder.name}\n", encoding="utf-8")
        return folder

    def copy(self, folder: Path) -> Path:
        """A plug-in from a folder, as a person would install it."""
        return Path(shutil.copytree(folder, self.home / "plugins" / folder.name))

    def load(self, *enabled: str) -> plugins.PluginManager:
        """Start over with these enabled."""
        if enabled:
            config.set_value("plugins.enabled", list(enabled), self.home)
        plugins.discover_plugins(force=True)
        return plugins.get_plugin_manager()


@contextmanager
def plugin_home(home: Path) -> Iterator[PluginHome]:
    """`home` must be the current one (`HERMES_HOME`)."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield PluginHome(home)
    finally:
        before = os.environ.get("HERMES_SAFE_MODE")
        os.environ["HERMES_SAFE_MODE"] = "1"
        try:
            plugins.discover_plugins(force=True)
        finally:
            if before is None:
                del os.environ["HERMES_SAFE_MODE"]
            else:
                os.environ["HERMES_SAFE_MODE"] = before
