"""Which search engine is configured. Separate from `search`, so that listing the tools imports little of `web`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_cli import plugins

if TYPE_CHECKING:
    from hermes_config.config import Config

BRAVE_KEY = "BRAVE_SEARCH_API_KEY"
HOW = (
    "Set web.searxng_url to the address of a SearXNG whose settings allow the format json, or put"
    f" {BRAVE_KEY} into .env (a key from https://brave.com/search/api)."
)
TIMES = {"day": "pd", "month": "pm", "year": "py"}
"""How old results may be, and Brave's words for it."""


def backend_of(config: Config) -> str:
    """The name of the engine that is used; empty without one."""
    has = {"searxng": bool(config.web.searxng_url), "brave": bool(config.environ(BRAVE_KEY))}
    has |= {name: True for name in plugins.get_web_search_providers() if name not in has}
    wanted = config.web.search_backend
    return next((name for name, there in has.items() if there and wanted in (None, name)), "")
