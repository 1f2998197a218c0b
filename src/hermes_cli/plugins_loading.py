"""Importing a plug-in's module, and saying in one line why that went wrong.

A folder is imported as `hermes_plugins.<slug>`, so that its own files import each other relatively.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hermes_cli import plugins_calls
from hermes_cli.plugins_api import PluginContext, PluginError
from hermes_cli.plugins_found import PACKAGE, Found


def import_and_register(found: Found, context: PluginContext) -> None:
    module = _import(found)
    register = vars(module).get("register") if isinstance(module, ModuleType) else None
    if not callable(register):
        raise PluginError("it has no function register(ctx)")
    register(context)


def _import(found: Found) -> Any:
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
    return _import_folder(name, found.folder)


def _import_folder(name: str, folder: Path) -> ModuleType:
    from importlib import util

    spec = util.spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
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
    return text if isinstance(error, PluginError) else f"{plugins_calls.where(error)}{f': {text}' if text else ''}"


def forget_modules() -> None:
    """The next import of a plug-in runs its code anew."""
    for module in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
