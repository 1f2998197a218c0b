"""Platforms: the contract between the gateway and chat services.

`base` is the contract; start there. `registry` lists the platforms, `context` is what an adapter gets,
`connections` keeps adapters connected, `splitting` cuts long texts. Each folder is one platform: its `register(ctx)`
makes the call that a plug-in makes.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_cli.plugins import PluginContext


def register(ctx: PluginContext) -> None:
    """Register the platforms that come with Hermes, by name."""
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda one: one.name):
        if found.ispkg:
            importlib.import_module(f"{__name__}.{found.name}").register(ctx)
