"""Finds and tests models for `hermes setup`: servers on this machine, a server at an address, and providers.

The search covers only loopback and waits at most half a second per server. A choice is tested before anything is
stored: the configuration is built in memory, and the model gets one small question. A key goes only to the host of that
choice (`host_of`): redirects are not followed.
"""

from __future__ import annotations

import asyncio
import re
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from urllib.parse import urlsplit

from hermes_agent.models import call, model_list, provider_table, providers
from hermes_agent.models.base import Endpoint, is_own_machine
from hermes_agent.models.provider_table import Provider
from hermes_config import config, redaction
from hermes_config.errors import ConfigError, HermesError, UsageError

_PROBE_SECONDS = 0.5
_TRY_SECONDS = 60.0
SUGGESTED: Mapping[str, str] = MappingProxyType({
    "openrouter": "anthropic/claude-sonnet-4.6",
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5",
    "gemini": "gemini-2.5-pro",
    "deepseek": "deepseek-chat",
})  # fmt: skip
"""The model that is proposed for a provider."""

_LIST_SECONDS = 15.0
_ADDRESS = re.compile(
    r"\w+://.*|(?:localhost|\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\])(?::\d+)?(?:/.*)?|[\w-]+(?:\.[\w-]+)+:\d{2,5}(?:/.*)?",
    re.IGNORECASE,
)


class ModelDoesNotAnswer(HermesError):
    """The model does not answer."""


class KeyRefused(ModelDoesNotAnswer):
    """The server wants a key, or refuses the given one."""


@dataclass(frozen=True, slots=True)
class SetupChoice:
    """A model with its provider or address, as config.yaml would hold it."""

    provider: str
    model: str
    base_url: str = ""


def local_servers(loaded: config.Config) -> list[SetupChoice]:
    """Find the model servers that answer on this machine, each with its first model."""
    found = []
    for row in provider_table.table().values():
        if not row.local or row.name == "demo":
            continue
        address = _address(row, loaded)
        if is_own_machine(address) and (model := _first_model(address)):
            found.append(SetupChoice(row.name, model))
    return found


def _address(row: Provider, loaded: config.Config) -> str:
    host = loaded.environ("OLLAMA_HOST") if row.name == "ollama" else None
    if not host:
        return row.base_url
    return (host if "://" in host else f"http://{host}").rstrip("/").removesuffix("/v1") + "/v1"


def _first_model(address: str) -> str:
    """Return the first model of a server; empty when no model server answers."""
    try:
        names = model_list.ids(model_list.fetch(address, "", _PROBE_SECONDS))
    except (OSError, ValueError):
        return ""
    return names[0] if names else ""


# -- a server of your own ----------------------------------------------------------------------------------------------


def looks_like_address(words: str) -> bool:
    """Whether this is an address rather than the name of a model."""
    return _ADDRESS.fullmatch(words.strip()) is not None


def address_of(words: str) -> str:
    """Check the typed address of a model server and return it, without the path of one call.

    Raises `UsageError` when it is invalid.
    """
    said, such_as = words.strip(), "It begins with http:// or https://, such as http://127.0.0.1:8000/v1."
    try:
        if "://" not in said and is_own_machine(f"http://{said}"):
            said = f"http://{said}"  # it does not leave this machine
        parts = urlsplit(said)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is not a number
        good = False
    if not good or any(mark.isspace() for mark in said):
        raise UsageError(f"{redaction.shown(said)} is not the address of a server", hint=such_as)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("the address must not hold a user, password or query", hint="Set-up asks for the key later.")
    return said.rstrip("/").removesuffix("/chat/completions")


def host_of(address: str) -> str:
    """Return the host of an address, with its port."""
    return urlsplit(address).netloc.rpartition("@")[2]


def is_unencrypted(address: str) -> bool:
    """Whether requests to this address leave the machine without encryption."""
    return urlsplit(address).scheme == "http" and not is_own_machine(address)


def models_at(address: str, key: str = "") -> tuple[str, list[str]]:
    """Return the address of a server, with a missing `/v1` added, and its models; none when it does not list them.

    The key goes only to that host. Raises `KeyRefused`, or `ModelDoesNotAnswer` when no server answers.
    """
    tries = [address] if urlsplit(address).path.strip("/") else [address, f"{address}/v1"]
    for one in tries:
        if names := _names(one, key):
            return one, names
    return tries[-1], []


def _names(address: str, key: str) -> list[str]:
    host = host_of(address)
    try:
        return model_list.ids(model_list.fetch(address, key, _LIST_SECONDS))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            what = f"{host} refuses this key" if key else f"{host} wants a key"
            raise KeyRefused(f"{what} ({error.code})") from None
        if 300 <= error.code < 400:
            said = f"{host} redirects to another address ({error.code}), and Hermes sends no key there"
            raise ModelDoesNotAnswer(said, hint="Give the final address.") from None
        return []
    except OSError as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
        raise ModelDoesNotAnswer(f"{host} does not answer: {why}", hint="Start it, or check the address.") from None
    except ValueError:  # the answer is not valid HTTP
        return []


# -- the configured model ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PresentModel:
    """The configured model, with or without its key."""

    label: str
    host: str
    variable: str
    """The variable of its key; empty when it needs none."""
    endpoint: Endpoint | None
    """None: its key is missing."""


def present(loaded: config.Config) -> PresentModel | None:
    """Return the configured model; None when there is none or it is invalid."""
    try:
        entry = providers.model_entry(loaded)
        row, entry = providers.provider_of(loaded, entry, str(entry.get("default") or ""), key="model")
        usual = row.keys[0] if row.keys else CUSTOM_KEY if row.name == "custom" else ""
        variable = str(entry.get("key_env") or usual)
        try:
            found = endpoint = providers.primary(loaded)
        except providers.MissingKey:
            endpoint, found = None, providers.primary(with_key(loaded, variable, "none yet"))
    except ConfigError:
        return None
    return PresentModel(f"{found.provider}/{found.model}", host_of(found.base_url), variable, endpoint)


def with_key(loaded: config.Config, variable: str, key: str) -> config.Config:
    """Return the configuration with another key for its model; nothing is written."""
    model = loaded.tree.get("model")
    entry = {"default": model} if isinstance(model, str) else {**(model or {})}
    entry.pop("api_key", None)
    if variable == CUSTOM_KEY:
        entry["key_env"] = variable
    return config.of(loaded.home, {**loaded.tree, "model": entry}, {**loaded.dotenv, variable: key})


def keep_key(variable: str, key: str) -> None:
    """Store another key for the configured model in `.env`."""
    config.put_variable(variable, key)
    config.set_values({"model.api_key": None} | ({"model.key_env": variable} if variable == CUSTOM_KEY else {}))


# -- a choice ----------------------------------------------------------------------------------------------------------


def host_for(choice: SetupChoice, loaded: config.Config) -> str:
    """Return the host that would get a key for this choice."""
    return host_of(providers.primary(candidate(loaded, choice, "none yet")).base_url)


def needed_key(choice: SetupChoice, loaded: config.Config) -> str:
    """The variable that must hold a key for this choice; empty when none is needed."""
    row = _provider(choice, loaded)
    return row.keys[0] if row.keys and not choice.base_url else ""


def whose(choice: SetupChoice, loaded: config.Config) -> str:
    """The provider of this choice, by name."""
    return _provider(choice, loaded).name


def has_no_provider(choice: SetupChoice) -> bool:
    """Whether the choice is only a name without a known provider: any provider with a key could get it."""
    guesses = filter(None, (row.guesses for row in provider_table.table().values()))
    bare = choice.provider == "auto" and "/" not in choice.model
    return bare and not any(re.match(guess, choice.model) for guess in guesses)


def _provider(choice: SetupChoice, loaded: config.Config) -> Provider:
    entry = {"provider": choice.provider, "base_url": choice.base_url}
    return providers.provider_of(loaded, entry, choice.model, key="model")[0]


def candidate(loaded: config.Config, choice: SetupChoice, key: str = "") -> config.Config:
    """The configuration as it would be with this choice; nothing is written."""
    entry, variable = _entry(choice, key, loaded)
    dotenv = {**loaded.dotenv, variable: key} if key else loaded.dotenv
    return config.of(loaded.home, {**loaded.tree, "model": entry}, dotenv)


def _entry(choice: SetupChoice, key: str, loaded: config.Config) -> tuple[dict[str, str], str]:
    """Return the section `model:` of config.yaml for this choice, and the variable that holds the key."""
    entry = {"default": choice.model, "provider": choice.provider}
    variable = needed_key(choice, loaded) or CUSTOM_KEY
    if choice.base_url:
        entry["base_url"] = choice.base_url
    if key and variable == CUSTOM_KEY:
        entry["key_env"] = CUSTOM_KEY
    return entry, variable


CUSTOM_KEY = "HERMES_MODEL_KEY"
"""Holds the key of a server that is not a known provider."""


def try_endpoint(endpoint: Endpoint) -> None:
    """Ask the model one small question. Raises a `HermesError` when there is no answer."""
    wire = provider_table.wire_for(endpoint)
    small = replace(endpoint, max_tokens=16 + endpoint.thinking_tokens)
    question = [{"role": "user", "content": "Say ok."}]
    body = wire.join(wire.head(small, "", ()), wire.fragments(question), wire.ending(small))
    try:
        asyncio.run(asyncio.wait_for(call.call(small, body), _TRY_SECONDS))
    except TimeoutError:
        raise ModelDoesNotAnswer(f"{endpoint.model} gave no answer within {_TRY_SECONDS:.0f} s") from None


def named(words: str, *, provider: str | None = None, base_url: str | None = None) -> SetupChoice:
    """Turn a typed name (`gpt-5`, `openai/gpt-5`, `ollama/llama3`) into a choice."""
    if base_url:
        return SetupChoice("custom", words, address_of(base_url))
    if provider:
        known = provider_table.known(provider)
        if not known:
            raise UsageError(
                f"there is no provider {provider[:40]!r}", hint=f"Known: {', '.join(provider_table.table())}."
            )
        return SetupChoice(known, words or SUGGESTED.get(known, ""))
    if looks_like_address(words):
        raise UsageError(f"{words[:60]!r} is an address, not a model", hint="Give it as --base-url.")
    where, model = providers.split(words, current="")
    return SetupChoice(where or "auto", model)


_MODEL_KEYS = ("base_url", "api_key", "key_env", "context_length", "api_mode", "provider", "default")
"""The keys of a model in config.yaml; those of the previous model are removed."""


def keep(choice: SetupChoice, key: str, loaded: config.Config) -> None:
    """Save the choice in config.yaml (only keys that change) and its key in `.env`."""
    wanted, variable = _entry(choice, key, loaded)
    if key and loaded.dotenv.get(variable) != key:
        config.put_variable(variable, key)
    now = loaded.tree.get("model")
    section = now if isinstance(now, Mapping) else {"default": now}
    config.set_values({f"model.{name}": new for name in _MODEL_KEYS if (new := wanted.get(name)) != section.get(name)})
