"""Makes endpoints from the configuration: model, address, key.

    model:
      default: anthropic/claude-sonnet-4.6
      provider: openrouter          # or a name of `custom_providers`, or custom with base_url and api_key
      context_length: 200000
    fallback_providers:
      - {provider: openai, model: gpt-5}

`model: demo` alone is enough for the built-in model. Without `provider` it is guessed (see `_guess`). A key comes
from the entry itself (`api_key`, or `key_env` naming a variable), else from the provider's usual variable in the
environment or `.env`; a custom address gets a provider's key only when it is that provider's host. Further keys of the
same provider are in the same variable with a number: `OPENAI_API_KEY_2` … `_9` (`models.keys`).

Every error is one line that names the key of config.yaml and the variable to set.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from hermes_agent.models.base import Endpoint, WireName, is_own_machine
from hermes_agent.models.provider_table import (
    ANTHROPIC_MAX_TOKENS,
    VENDORS,
    Provider,
    context_length,
    faults,
    known,
    table,
)
from hermes_agent.text import close_names
from hermes_cli import plugins
from hermes_config import redaction
from hermes_config.config import Config
from hermes_config.errors import ConfigError
from hermes_config.schema import line_of

_log = logging.getLogger(__name__)
_MOST_KEYS = 9
_PLAIN_TASKS = frozenset({"title", "compression", "review"})
AUXILIARY_TASKS = (*sorted(_PLAIN_TASKS), "vision")
_NO_MODEL_HINT = "hermes setup finds or asks for one; --model demo tries the built-in one."
_WIRES: dict[str, WireName] = {
    "chat": "chat", "chat_completions": "chat", "openai": "chat",
    "anthropic": "anthropic", "anthropic_messages": "anthropic",
}  # fmt: skip


class MissingKey(ConfigError):
    """The chosen provider's key was not found."""


def primary(config: Config, *, model: str | None = None, provider: str | None = None) -> Endpoint:
    """The endpoint of the configured model, or of `--model` and `--provider`. Raises `ConfigError`."""
    entry = model_entry(config)
    if model is None and provider is None:
        return _endpoint(config, entry, key="model")
    current = str(entry.get("provider") or "").strip().lower()
    wanted = (model or str(entry.get("default") or "")).strip()
    named = provider.strip().lower() if provider else None
    if named is None:
        named, wanted = split(wanted, current=current)
    elif model is None and known(named) == "demo":
        wanted = "demo"
    changed = dict(entry)
    if named is not None and named != current:
        if known(named) != _configured(config, entry):
            changed = {"provider": named}  # address, key and headers belong to the other provider
        elif current in ("", "auto"):
            changed["provider"] = named
    elif named is None and current in ("", "auto") and _is_unknown(config, entry, wanted):
        here = _configured(config, entry) if entry.get("default") else ""
        told = f" for {here}, the configured provider" if here else ", and no provider is configured"
        raise ConfigError(f"the model {wanted:.60} is unknown{told}", file="", hint=_HOW_TO_NAME)
    if wanted != entry.get("default"):
        changed.pop("context_length", None)  # it belongs to the other model
    changed["default"] = wanted
    try:
        return _endpoint(config, changed, key="model", asked=True)
    except ConfigError as error:
        if provider and error.key == "model.provider":  # it was named here, not in config.yaml
            raise ConfigError(error.reason, file="", hint=error.hint) from None
        raise


def _is_unknown(config: Config, entry: Entry, model: str) -> bool:
    """Whether nothing about a model's name tells its provider, and the guess is one that nobody has a key for."""
    prefix = model.partition("/")[0].lower() if "/" in model else ""
    told = bool(entry.get("base_url") or known(prefix) or prefix in VENDORS or maker(model))
    return bool(model) and model != "demo" and not told and not found_key(config, table()["openrouter"].keys)


def _configured(config: Config, entry: Entry) -> str:
    """The provider of the configured model, by its name in the table; empty if there is none."""
    try:
        return provider_of(config, entry, str(entry.get("default") or ""), key="model")[0].name
    except ConfigError:
        return ""


def fallbacks(config: Config) -> tuple[Endpoint, ...]:
    """`fallback_providers` in order, then the legacy `fallback_model`, without entries that have no key (logged)."""
    listed = config.fallback_providers or ()
    if isinstance(listed, Mapping | str):
        listed = (listed,)
    if not isinstance(listed, list | tuple):
        raise fault(config, "fallback_providers", "must be a list of providers with their models")
    entries = [("fallback_providers", one) for one in listed]
    if legacy := config.fallback_model:
        entries.append(("fallback_model", legacy))
    found: list[Endpoint] = []
    for key, one in entries:
        try:
            endpoint = _endpoint(config, fallback_entry(config, key, one), key=key)
        except MissingKey as error:
            _log.warning("A fallback is left out: %s", error.one_line(), extra={"action": "fallback_left_out"})
            continue
        if endpoint not in found:
            found.append(endpoint)
    return tuple(found)


def auxiliary(config: Config, task: str) -> Endpoint | None:
    """The model that `auxiliary.<task>` names for calls beside the conversation; None without it or a key (logged).

    For a task whose model needs no particular ability, `auxiliary.default` counts, too.
    """
    named = (task, "default") if task in _PLAIN_TASKS else (task,)
    key, given = next(
        ((f"auxiliary.{name}", entry) for name in named if _is_chosen(entry := getattr(config.auxiliary, name, None))),
        ("", None),
    )
    if not key:
        return None
    try:
        return _endpoint(config, fallback_entry(config, key, given), key=key)
    except MissingKey as error:
        _log.warning("An auxiliary model is left out: %s", error.one_line(), extra={"action": "auxiliary_left_out"})
        return None


def _is_chosen(entry: Any) -> bool:
    """Whether an entry names a model. Homes of hermes-agent have entries with `provider: auto` alone."""
    return bool(entry.get("model") or entry.get("default") if isinstance(entry, Mapping) else entry)


def offered(config: Config, names: Iterable[str] = ()) -> tuple[Endpoint, ...]:
    """The endpoints of the configured model, its fallbacks, and the usable ones of `names`."""
    found: list[Endpoint] = []
    for name in (None, *names):
        try:
            endpoint = primary(config, model=name)
        except ConfigError as error:
            _log.warning("A model is left out: %s", error.one_line(), extra={"action": "model_left_out"})
            continue
        if endpoint not in found:
            found.append(endpoint)
    return (*found, *(one for one in fallbacks(config) if one not in found))


def shown_address(endpoint: Endpoint) -> str:
    """The endpoint's address without its user name, password and query."""
    parts = urlsplit(endpoint.base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _endpoint(config: Config, entry: Entry, *, key: str, asked: bool = False) -> Endpoint:
    """The endpoint of an entry. `asked`: a person named the model just now, so an error does not blame the file."""
    given = entry.get("default")
    if given is not None and not isinstance(given, str):
        raise fault(config, f"{key}.default", "must be the name of a model")
    if not given or not given.strip():
        raise fault(config, f"{key}.default", "no model is chosen", hint=_NO_MODEL_HINT)
    if "://" in given:
        said, hint = "is an address, not the name of a model", "hermes setup asks for the address of your own server."
        if asked:
            raise ConfigError(f"{given[:60]!r} {said}", file="")
        raise fault(config, f"{key}.default", said, hint=hint)
    row, entry = provider_of(config, entry, given.strip(), key=key)
    model = _id(row, given.strip())
    if row.name == "demo":
        if model != "demo":
            hint = f"Write {maker(model) or 'PROVIDER'}/{model}."
            said = f"demo has no model {model:.60}"
            raise ConfigError(said, file="", hint=hint) if asked else fault(config, f"{key}.default", said, hint=hint)
        return _demo(config)
    base_url = _base_url(config, row, entry, key=key)
    wire = _wire(config, row, entry, base_url, key=key)
    if wire == "anthropic":
        base_url = base_url.removesuffix("/v1")  # the path of a request begins with it
    (api_key, key_from), *more_keys = _keys(config, row, entry, base_url, key=key)
    window = _tokens(config, entry, "context_length", key=key) or _own_window(config, model, given.strip())
    headers = _section(config, entry, "headers", key=key)
    return Endpoint(
        provider=row.name,
        wire=wire,
        base_url=base_url,
        model=model,
        api_key=api_key,
        context_length=window or context_length(row, model, base_url),
        max_tokens=_tokens(config, entry, "max_tokens", key=key)
        or (ANTHROPIC_MAX_TOKENS if wire == "anthropic" else None),
        headers=tuple(sorted((str(name).lower(), str(value)) for name, value in headers.items())),
        options=_options(config, row, entry, key=key),
        key_from=key_from,
        more_keys=tuple(more_keys),
        refreshed=row.credential is not None and not api_key,
    )


def _demo(config: Config) -> Endpoint:
    from hermes_agent.models.demo import model as demo

    config.require("demo")
    return demo.endpoint(tokens_per_second=config.demo.tokens_per_second)


def _base_url(config: Config, row: Provider, entry: Entry, *, key: str) -> str:
    given = entry.get("base_url") or (config.environ(row.base_url_variable) if row.base_url_variable else None)
    if not given and row.name == "ollama" and (host := config.environ("OLLAMA_HOST")):
        given = (host if "://" in host else f"http://{host}").rstrip("/").removesuffix("/v1") + "/v1"
    url = str(given or row.base_url).strip().rstrip("/")
    if not url:
        hint = "Set it, for example, to http://127.0.0.1:8000/v1."
        raise fault(config, f"{key}.base_url", "the provider custom needs the address of a model server", hint=hint)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise fault(config, f"{key}.base_url", "must be an address that begins with http:// or https://")
    return url.removesuffix("/chat/completions").removesuffix("/v1/messages")


def _wire(config: Config, row: Provider, entry: Entry, base_url: str, *, key: str) -> WireName:
    mode = str(entry.get("api_mode") or "").strip().lower()
    if mode in _WIRES:
        return _WIRES[mode]
    if mode not in ("", "auto"):
        hint = "Use chat_completions or anthropic_messages."
        raise fault(config, f"{key}.api_mode", f"{mode!r:.60} is not supported", hint=hint)
    return "anthropic" if row.name == "custom" and base_url.endswith("/anthropic") else row.wire


def _keys(config: Config, row: Provider, entry: Entry, base_url: str, *, key: str) -> list[tuple[str, str]]:
    """The keys, each with where it was found; the first one may be empty."""
    given = entry.get("api_key")
    if isinstance(given, str) and given.strip():
        return [(given.strip(), f"{key}.api_key in config.yaml")]
    if row.credential is not None and same_host(base_url, row.base_url):
        return [("", f"the credential of {row.name}")]
    variable = entry.get("key_env")
    variables = (str(variable),) if variable else row.keys or _keys_of(base_url)
    for name in variables:
        found: dict[str, str] = {}
        numbered = (name, *(f"{name}_{number}" for number in range(2, _MOST_KEYS + 1)))
        for value, place in filter(None, (found_key(config, (one,)) for one in numbered)):
            found.setdefault(value, place)
        if found:
            return list(found.items())
    if not variables or row.local or (row.name == "custom" and not variable):
        return [("", "")]
    place, wanted = f"{key}.provider", str(entry.get("default") or "")
    if str(entry.get("provider") or "").lower() in ("", "auto") and _is_unknown(config, entry, wanted):
        raise MissingKey(
            f"the model {wanted:.60} is unknown, and no provider is named",
            file=str(config.home / "config.yaml"),
            line=line_of(config.home / "config.yaml", [key]),
            key=f"{key}.default",
            hint=_HOW_TO_NAME,
        )
    raise MissingKey(
        f"the provider {row.name} needs a key, and {' or '.join(variables)} is not set",
        file=str(config.home / "config.yaml"),
        line=line_of(config.home / "config.yaml", place.split(".")),
        key=place,
        hint=f"hermes setup asks for it; or put {variables[0]}=… into {config.home / '.env'} or the environment.",
    )


def same_host(one: str, other: str) -> bool:
    """Whether a key may be sent: only to its provider's own host, or to a replacement on this machine."""
    return is_own_machine(one) or urlsplit(one).hostname == urlsplit(other).hostname


def _keys_of(base_url: str) -> tuple[str, ...]:
    """The key variables of the provider with this host: a custom entry may point at a known provider."""
    host = urlsplit(base_url).hostname
    return next((row.keys for row in table().values() if row.keys and urlsplit(row.base_url).hostname == host), ())


def _own_window(config: Config, *names: str) -> int | None:
    """`models.<id>.context_length`, under the provider's id or the id that the person wrote."""
    for name in names:
        config.require(f"models.{name}.context_length")
        if name in config.models and (window := config.models[name].context_length):
            return window
    return None


def _tokens(config: Config, entry: Entry, name: str, *, key: str) -> int | None:
    value = entry.get(name)
    if value is None or value in ("", "auto"):
        return None
    text = str(value).replace("_", "").replace(",", "").strip()
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    if number < 0:
        raise fault(config, f"{key}.{name}", f"must be a number of tokens, not {redaction.shown(value)}")
    return number or None


def _section(config: Config, entry: Entry, name: str, *, key: str) -> Mapping[str, Any]:
    value = entry.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise fault(config, f"{key}.{name}" if key else name, "must be a section of names and values")
    return value


_OWN_FIELDS = ("model", "messages", "system", "tools", "stream", "n")
"""Fields of a request that only Hermes sets: with `n`, the provider would bill answers that nobody reads."""


def check(config: Config) -> None:
    """Raise `ConfigError` if the entry of the main model, or an `extra_body` of any, cannot be used."""
    model_entry(config)
    for key in ("model", "fallback_providers", "fallback_model", "custom_providers", "auxiliary"):
        found = config.tree.get(key)
        entries = [(key, one) for one in (found if isinstance(found, list | tuple) else (found,))]
        if key == "auxiliary" and isinstance(found, Mapping):
            entries = [(f"{key}.{name}", one) for name, one in found.items()]
        for place, entry in entries:
            extra = entry.get("extra_body") if isinstance(entry, Mapping) else None
            _refuse_own_fields(config, extra if isinstance(extra, Mapping) else {}, key=place)


def _refuse_own_fields(config: Config, extra: Mapping[str, Any], *, key: str) -> None:
    for name in _OWN_FIELDS:
        if name in extra:
            raise fault(config, f"{key}.extra_body.{name}", "only Hermes sets this field", hint="Remove it.")


def _options(config: Config, row: Provider, entry: Entry, *, key: str) -> tuple[tuple[str, Any], ...]:
    extra = _section(config, entry, "extra_body", key=key)
    _refuse_own_fields(config, extra, key=key)
    options: dict[str, Any] = {}
    config.require("agent.reasoning_effort")
    effort = config.agent.reasoning_effort
    if effort and row.name == "openrouter":  # only OpenRouter accepts this option for every model
        options["reasoning"] = {"enabled": False} if effort == "none" else {"effort": effort}
    options.update({str(name): value for name, value in extra.items()})
    return tuple(options.items())


def fault(config: Config, key: str, reason: str, *, hint: str = "") -> ConfigError:
    file = config.home / "config.yaml"
    return ConfigError(reason, file=str(file), line=line_of(file, key.split(".")), key=key, hint=hint)


_HOW_TO_NAME = "Write PROVIDER/MODEL, such as openai/gpt-5 or ollama/llama3; hermes setup asks for a key."

Entry = Mapping[str, Any]
"""A model in config.yaml: default, provider, base_url, api_key, context_length …"""


def model_entry(config: Config) -> Entry:
    """The section `model:`, which may also be just a name."""
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


def split(model: str, *, current: str) -> tuple[str | None, str]:
    """Split `--model` into (provider or None, model id). `current`: the provider in use, or empty."""
    if model == "demo":
        return "demo", model
    prefix, _, rest = model.partition("/")
    name = known(prefix)
    if not name or not rest:
        return None, model
    if name == "openrouter":
        return name, rest if "/" in rest else model  # openrouter/auto is a model of its own
    here = table().get(known(current) or "openrouter")
    if prefix.lower() in VENDORS and (here is None or here.vendor_ids):
        return None, model
    return name, rest


def provider_of(config: Config, entry: Entry, model: str, *, key: str) -> tuple[Provider, Entry]:
    """The provider's row, and the entry merged with its `custom_providers` entry."""
    named = str(entry.get("provider") or "").strip().lower()
    if named in ("", "auto"):
        return table()[_guess(config, entry, model)], entry
    own_name = named.removeprefix("custom:")
    for own in _custom(config):
        if str(own.get("name") or "").strip().lower() == own_name:
            return table()["custom"], {**own, **{name: value for name, value in entry.items() if value}}
    if not known(named):
        plugins.discover_plugins()  # a plug-in may register it, and not every command has loaded plug-ins
    if name := known(named):
        return table()[name], entry
    if named in faults():
        reason = f"the provider {named:.60} is left out, because a field is wrong: {faults()[named]}"
        raise fault(config, f"{key}.provider", reason, hint="hermes plugins list names its plug-in.")
    aliases = [alias for row in table().values() for alias in row.aliases]
    near = close_names(named, (*table(), *aliases), most=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(table())}."
    raise fault(config, f"{key}.provider", f"there is no provider called {named!r:.60}", hint=hint)


def _id(row: Provider, model: str) -> str:
    """The provider's own id: without its name before it (`ollama/llama3`, `google/gemini-2.5-pro` at Gemini itself).

    Anthropic's `claude-sonnet-4-6` is `claude-sonnet-4.6` at OpenRouter.
    """
    prefix, _, rest = model.partition("/")
    its_own = prefix.lower() == row.name or (not row.vendor_ids and known(prefix) == row.name)
    if rest and its_own and (row.name != "openrouter" or "/" in rest):
        model = rest
    return re.sub(r"(?<=\d)\.(?=\d)", "-", model) if row.name == "anthropic" and model.startswith("claude") else model


def maker(model: str) -> str:
    """The provider that makes this model, by the model's name; empty if the name does not show it."""
    return next((row.name for row in table().values() if row.guesses and re.match(row.guesses, model)), "")


def found_key(config: Config, variables: tuple[str, ...]) -> tuple[str, str] | None:
    """(key, where it was found) of the first variable with a value; surrounding quotes are removed."""
    for name in variables:
        value = (config.environ(name) or "").strip().strip("\"'").strip()
        if value:
            return value, f"{name} in {'the environment' if name in os.environ else '.env'}"
    return None


def _guess(config: Config, entry: Entry, model: str) -> str:
    """Guess the provider of a model from the address, the id's prefix, and the available keys."""
    if model == "demo":
        return "demo"
    if entry.get("base_url"):
        return "custom"
    prefix = model.partition("/")[0].lower() if "/" in model else ""
    named = known(prefix)
    if named and prefix not in VENDORS:
        return named
    natural = named or maker(model)
    through_openrouter = found_key(config, table()["openrouter"].keys) is not None
    if prefix and through_openrouter:
        return "openrouter"
    if natural and (found_key(config, table()[natural].keys) or not through_openrouter):
        return natural
    return "openrouter"


def _custom(config: Config) -> list[Entry]:
    listed = config.custom_providers
    if isinstance(listed, Mapping):
        return [{"name": name, **one} for name, one in listed.items() if isinstance(one, Mapping)]
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list | tuple) else []
