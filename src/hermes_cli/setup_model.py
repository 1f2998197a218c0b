"""Finding a model for `hermes setup`: servers on this machine, providers, and whether one really answers.

Only loopback is asked for servers, each for at most half a second. A choice is tried before anything is written down:
the configuration it would give is built in memory, and one small question is put to the model.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_config import config
from hermes_config.errors import HermesError, UsageError

if TYPE_CHECKING:
    from hermes_agent.models.base import Endpoint
    from hermes_agent.models.provider_table import Provider

_PROBE_SECONDS = 0.5
_TRY_SECONDS = 60.0
_MOST_BYTES = 1_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
SUGGESTED: Mapping[str, str] = MappingProxyType({
    "openrouter": "anthropic/claude-sonnet-4.6",
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5",
    "gemini": "gemini-2.5-pro",
    "deepseek": "deepseek-chat",
})  # fmt: skip
"""What is proposed for a provider when nobody names a model."""


class ModelDoesNotAnswer(HermesError):
    """The model does not answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A model somewhere, as it would be written into config.yaml."""

    provider: str
    model: str
    base_url: str = ""


def local_servers(loaded: config.Config) -> list[Choice]:
    """The model servers that answer on this machine, with the first model each has."""
    from hermes_agent.models.provider_table import PROVIDERS

    found = []
    for row in PROVIDERS.values():
        if not row.local or row.name == "demo":
            continue
        address = _address(row, loaded)
        if urlsplit(address).hostname in _LOOPBACK and (model := _first_model(address)):
            found.append(Choice(row.name, model))
    return found


def _address(row: Provider, loaded: config.Config) -> str:
    host = loaded.environ("OLLAMA_HOST") if row.name == "ollama" else None
    if not host:
        return row.base_url
    return (host if "://" in host else f"http://{host}").rstrip("/").removesuffix("/v1") + "/v1"


def _first_model(address: str) -> str:
    """Empty when nothing answers there, or something that is no model server."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this machine's loopback
    try:
        with direct.open(f"{address}/models", timeout=_PROBE_SECONDS) as answer:
            listed = json.loads(answer.read(_MOST_BYTES))["data"]
            return str(listed[0]["id"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def needed_key(choice: Choice, loaded: config.Config) -> str:
    """The variable that must hold a key for this choice; empty when none is needed."""
    row = _provider(choice, loaded)
    return row.keys[0] if row.keys and not choice.base_url else ""


def whose(choice: Choice, loaded: config.Config) -> str:
    """The provider of this choice, by name."""
    return _provider(choice, loaded).name


def is_nobodys(choice: Choice) -> bool:
    """Whether only a name was given, and one that no provider is known for: it would be sent wherever a key is."""
    from hermes_agent.models.provider_table import PROVIDERS

    guesses = filter(None, (row.guesses for row in PROVIDERS.values()))
    bare = choice.provider == "auto" and "/" not in choice.model
    return bare and not any(re.match(guess, choice.model) for guess in guesses)


def _provider(choice: Choice, loaded: config.Config) -> Provider:
    from hermes_agent.models import choosing

    entry = {"provider": choice.provider, "base_url": choice.base_url}
    return choosing.provider_of(loaded, entry, choice.model, key="model")[0]


def candidate(loaded: config.Config, choice: Choice, key: str = "") -> config.Config:
    """The configuration as it would be with this choice; nothing is written."""
    entry: dict[str, Any] = {"default": choice.model, "provider": choice.provider}
    if choice.base_url:
        entry["base_url"] = choice.base_url
    dotenv = dict(loaded.dotenv)
    if key:
        variable = needed_key(choice, loaded)
        dotenv[variable or CUSTOM_KEY] = key
        if not variable:
            entry["key_env"] = CUSTOM_KEY
    return replace(loaded, tree=MappingProxyType({**loaded.tree, "model": entry}), dotenv=MappingProxyType(dotenv))


CUSTOM_KEY = "HERMES_MODEL_KEY"
"""Holds the key of a server that is none of the providers we know."""


def try_endpoint(endpoint: Endpoint) -> None:
    """Put one small question to the model. Raises an error of ours when there is no answer."""
    from hermes_agent.models import calling, wires

    wire = wires.wire_for(endpoint)
    small = replace(endpoint, max_tokens=16)
    question = [{"role": "user", "content": "Say ok."}]
    body = wire.join(wire.head(small, "", ()), wire.fragments(question))
    try:
        asyncio.run(asyncio.wait_for(calling.call(small, body), _TRY_SECONDS))
    except TimeoutError:
        raise ModelDoesNotAnswer(f"{endpoint.model} gave no answer within {_TRY_SECONDS:.0f} s") from None


def named(words: str, *, provider: str | None = None, base_url: str | None = None) -> Choice:
    """What a person typed (`gpt-5`, `openai/gpt-5`, `ollama/llama3`) as a choice."""
    from hermes_agent.models import choosing

    if base_url:
        if urlsplit(base_url).scheme not in ("http", "https"):
            raise UsageError("--base-url must begin with http:// or https://")
        return Choice("custom", words, base_url)
    if provider:
        known = choosing.known(provider)
        if not known:
            from hermes_agent.models.provider_table import PROVIDERS

            raise UsageError(f"there is no provider {provider[:40]!r}", hint=f"Known: {', '.join(PROVIDERS)}.")
        return Choice(known, words or SUGGESTED.get(known, ""))
    where, model = choosing.split(words, current="")
    return Choice(where or "auto", model)


def keep(choice: Choice, key: str, loaded: config.Config) -> None:
    """Write the choice into config.yaml and the key into `.env`, and nowhere else."""
    variable = needed_key(choice, loaded) or (CUSTOM_KEY if key else "")
    if key and loaded.dotenv.get(variable) != key:
        config.put_variable(variable, key)
    config.set_value("model.default", choice.model)
    config.set_value("model.provider", choice.provider)
    # What belonged to the model before: its address, its key, its window.
    for name in ("base_url", "api_key", "key_env", "context_length", "api_mode"):
        config.unset_value(f"model.{name}")
    if choice.base_url:
        config.set_value("model.base_url", choice.base_url)
    if key and variable == CUSTOM_KEY:
        config.set_value("model.key_env", CUSTOM_KEY)
