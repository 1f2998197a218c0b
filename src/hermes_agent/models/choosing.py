"""Whose model it is: from an entry of the configuration, or the words of `--model`, to a provider and a model's id.

The difficulty is the slash. `anthropic/claude-sonnet-4.6` is a model's id at OpenRouter and "Claude, at Anthropic
itself" everywhere else. The rule: at a provider whose ids begin with vendors, a vendor's name before the slash is part
of the id; any other provider's name before a slash chooses that provider.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from hermes_agent.models.faults import fault
from hermes_agent.models.provider_table import ALIASES, PROVIDERS, VENDORS, Provider
from hermes_config.config import Config

Entry = Mapping[str, Any]
"""A model as config.yaml writes it: default, provider, base_url, api_key, context_length …"""


def model_entry(config: Config) -> Entry:
    """`model:`, which may also be just a name."""
    entry = config.tree.get("model")
    if entry is None:
        return {}
    if isinstance(entry, str):
        return {"default": entry}
    if not isinstance(entry, Mapping):
        raise fault(config, "model", "must be a model's name, or a section with default and provider")
    return entry


def fallback_entry(config: Config, key: str, one: Any) -> Entry:
    """One entry of `fallback_providers`: provider and model, or both in one text."""
    if isinstance(one, str) and one.strip():
        provider, model = split(one.strip(), current="")
        return {"default": model, "provider": provider or ""}
    if not isinstance(one, Mapping):
        raise fault(config, key, "each entry needs a provider and a model")
    named = one.get("model") or one.get("default")
    if not isinstance(named, str) or not named.strip():
        raise fault(config, key, "an entry has no model")
    return {**one, "default": named}


def known(name: Any) -> str:
    """The provider's own name for whatever people call it; empty for nobody we know."""
    name = str(name or "").strip().lower()
    return name if name in PROVIDERS else ALIASES.get(name, "")


def split(model: str, *, current: str) -> tuple[str | None, str]:
    """What `--model` says, as (provider or None, model's id). `current` is the provider in use; empty: still open."""
    if model == "demo":
        return "demo", model
    prefix, _, rest = model.partition("/")
    name = known(prefix)
    if not name or not rest:
        return None, model
    if name == "openrouter":
        return name, rest if "/" in rest else model  # openrouter/auto is a model of its own
    here = PROVIDERS.get(known(current) or "openrouter")
    if prefix.lower() in VENDORS and (here is None or here.vendor_ids):
        return None, model
    return name, rest


def provider_of(config: Config, entry: Entry, model: str, *, key: str) -> tuple[Provider, Entry]:
    """The provider's row, and the entry together with what `custom_providers` says of it."""
    named = str(entry.get("provider") or "").strip().lower()
    if named in ("", "auto"):
        return PROVIDERS[_guess(config, entry, model)], entry
    own_name = named.removeprefix("custom:")
    for own in _custom(config):
        if str(own.get("name") or "").strip().lower() == own_name:
            return PROVIDERS["custom"], {**own, **{name: value for name, value in entry.items() if value}}
    if name := known(named):
        return PROVIDERS[name], entry
    from difflib import get_close_matches  # only ever needed for a mistake

    near = get_close_matches(named, (*PROVIDERS, *ALIASES), n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(PROVIDERS)}."
    raise fault(config, f"{key}.provider", f"there is no provider called {named!r:.60}", hint=hint)


def bare_id(row: Provider, model: str) -> str:
    """The id without the provider's own name before it (`ollama/llama3`, `google/gemini-2.5-pro` at Gemini itself)."""
    prefix, _, rest = model.partition("/")
    if not rest or (row.name == "openrouter" and "/" not in rest):
        return model
    its_own = prefix.lower() == row.name or (not row.vendor_ids and known(prefix) == row.name)
    return rest if its_own else model


def maker(model: str) -> str:
    """The provider whose model this is by its name; empty when the name does not tell."""
    return next((row.name for row in PROVIDERS.values() if row.guesses and re.match(row.guesses, model)), "")


def found_key(config: Config, variables: tuple[str, ...]) -> tuple[str, str] | None:
    """(key, where it was found) of the first variable that holds something; quotes around it are taken off."""
    for name in variables:
        value = (config.environ(name) or "").strip().strip("\"'").strip()
        if value:
            return value, f"{name} in {'the environment' if name in os.environ else '.env'}"
    return None


def _guess(config: Config, entry: Entry, model: str) -> str:
    """Whose a model is when nobody says so: the address, the prefix, and which keys there are."""
    if model == "demo":
        return "demo"
    if entry.get("base_url"):
        return "custom"
    prefix = model.partition("/")[0].lower() if "/" in model else ""
    named = known(prefix)
    if named and prefix not in VENDORS:
        return named
    natural = named or maker(model)
    through_openrouter = found_key(config, PROVIDERS["openrouter"].keys) is not None
    if prefix and through_openrouter:
        return "openrouter"
    if natural and (found_key(config, PROVIDERS[natural].keys) or not through_openrouter):
        return natural
    return "openrouter"


def _custom(config: Config) -> list[Entry]:
    listed = config.tree.get("custom_providers")
    if isinstance(listed, Mapping):
        return [{"name": name, **one} for name, one in listed.items() if isinstance(one, Mapping)]
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list | tuple) else []
