"""Which wire an endpoint speaks, and in which dialect: by the provider's name, or by the host of its address."""

from __future__ import annotations

from functools import cache, lru_cache
from urllib.parse import urlsplit

from hermes_agent.models.base import Endpoint, Wire

_HOSTS = {
    "openrouter.ai": "openrouter",
    "api.openai.com": "openai",
    "api.deepseek.com": "deepseek",
    "api.moonshot.ai": "kimi",
    "api.moonshot.cn": "kimi",
    "api.mistral.ai": "mistral",
    "generativelanguage.googleapis.com": "gemini",
}


def wire_for(endpoint: Endpoint) -> Wire:
    """The endpoint's provider format. Wires have no state: the same object serves every conversation."""
    if endpoint.wire == "anthropic":
        return _anthropic()
    return _chat(_HOSTS.get(_host(endpoint.base_url), endpoint.provider))


@lru_cache(maxsize=64)
def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


@cache
def _anthropic() -> Wire:
    from hermes_agent.models.anthropic import AnthropicWire

    return AnthropicWire()


@cache
def _chat(speaker: str) -> Wire:
    from hermes_agent.models.chat import ChatWire, Dialect

    dialects = {
        "openai": Dialect("openai", max_tokens="max_completion_tokens"),
        "openrouter": Dialect("openrouter", reasoning_back="details", cache_marker=True),
        "deepseek": Dialect("deepseek", reasoning_back="content"),
        "kimi": Dialect("kimi", reasoning_back="content"),
        "mistral": Dialect("mistral", include_usage=False, nine_letter_ids=True),
        "gemini": Dialect("gemini", reasoning_back="extra"),
    }
    dialect = dialects.get(speaker)
    return ChatWire(dialect, f"chat/1+{dialect.name}") if dialect else ChatWire()
