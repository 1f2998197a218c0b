"""What a first turn would import, imported before it comes.

The HTTP client alone takes longer to import than a whole turn. It is done in a thread as soon as messages are let in:
earlier it would hold up the start, and whoever writes in between waits no longer than without it.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from hermes_config.config import Config

_log = logging.getLogger("hermes.gateway")
_LATE = (
    "hermes_agent.models.http", "hermes_agent.titling",
    "hermes_agent.tools.media", "hermes_agent.tools.paths", "hermes_agent.tools.plugin_tools",
    "hermes_agent.tools.results",
)  # fmt: skip
"""Imported by a turn at the moment of use."""


def warm(config: Config) -> None:
    """Call it beside the event loop. A model that is not configured yet is no error here."""
    from hermes_agent.models import http, provider_table, providers

    for name in _LATE:
        importlib.import_module(name)
    try:
        endpoint = providers.primary(config)
    except ConfigError as error:
        _log.info("no model to get ready: %s", error.one_line(), extra={"action": "warm"})
        return
    provider_table.wire_for(endpoint)
    http.get_ready(endpoint)
