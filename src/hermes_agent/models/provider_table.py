"""The table of providers: address, wire format, key variables, prices and context windows.

One call of `ctx.register_provider(name, **fields)` registers a provider, built-in ones (`register` below) like those of
plug-ins; the fields are those of `Provider`. `table` returns all rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from hermes_agent.models.base import Endpoint, Wire, WireName, is_own_machine
from hermes_cli import plugins

if TYPE_CHECKING:
    from hermes_cli.plugins import PluginContext
    from hermes_config.config import Config

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dialect:
    """A server's differences from common chat completions."""

    name: str = ""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """OpenAI's newer models accept only the second."""
    include_usage: bool = True
    """Mistral always reports the usage and refuses unknown fields."""
    reasoning_back: Literal["", "details", "content", "extra"] = ""
    """The part of the model's reasoning that is sent back. OpenRouter: `reasoning_details`. DeepSeek and Kimi:
    `reasoning_content`, without which a step with tool calls is refused. Gemini: the signature on each call."""
    nine_letter_ids: bool = False
    """Mistral accepts only call ids of exactly nine letters and digits."""
    cache_marker: bool = False
    """OpenRouter passes a top-level `cache_control` to Anthropic's models."""


COMMON = Dialect()


class Credential(NamedTuple):
    """A temporary key."""

    key: str
    expires_at: float | None = None
    """When the key expires, in seconds since 1970; None: when the provider refuses it."""


TokenPrices = tuple[float, float, float | None, float | None]
"""US dollars for a million tokens: input, output, read from the cache, written to it. None: as input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One row of the table."""

    name: str
    base_url: str
    keys: tuple[str, ...] = ()
    """The variables that may hold the key, in order. None: no key is needed."""
    credential: Callable[[Config], Credential | Awaitable[Credential]] | None = None
    """A function, or coroutine function, that gives the key, and a new one when the key expired or was refused."""
    wire: WireName = "chat"
    base_url_variable: str = ""
    vendor_ids: bool = False
    """Whether its model ids begin with a vendor (`anthropic/claude-…`), so that a prefix names no other provider."""
    guesses: str = ""
    """A regular expression of model ids that belong to this provider if no provider is given."""
    aliases: tuple[str, ...] = ()
    """Other names for it in config.yaml."""
    local: bool = False
    """Whether it runs on the person's own machine, without a key and without cost."""
    dialect: Dialect = COMMON
    context: Mapping[str, int] = field(default_factory=dict)
    """Context windows in tokens: (regular expression of the id without its vendor, window); the first match counts."""
    prices: Mapping[str, TokenPrices] = field(default_factory=dict)
    """List prices by the id without its vendor and date. Other models have no price."""


# The window of a model is on the small side where it varies. Prices are list prices as found in public documentation
# (`prices.AS_OF`); tiers by length or priority are not in them, and a model that has tiers is left out.


def register(ctx: PluginContext) -> None:
    """Register the providers that come with Hermes."""
    add = ctx.register_provider
    # fmt: off
    add("openrouter", base_url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",), vendor_ids=True,
        dialect=Dialect("openrouter", reasoning_back="details", cache_marker=True))
    add("anthropic", base_url="https://api.anthropic.com", keys=("ANTHROPIC_API_KEY",), wire="anthropic",
        base_url_variable="ANTHROPIC_BASE_URL", guesses=r"claude", aliases=("claude",),
        context={r"claude": 200_000}, prices=_CLAUDE)
    add("openai", base_url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), base_url_variable="OPENAI_BASE_URL",
        guesses=r"gpt-|o\d|chatgpt-", dialect=Dialect("openai", max_tokens="max_completion_tokens"), prices=_GPT,
        context={r"gpt-4\.1": 1_047_576, r"gpt-5": 400_000, r"gpt-4o|gpt-4-turbo": 128_000, r"^o[34]": 200_000})
    add("gemini", base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"), guesses=r"gemini|gemma", aliases=("google",),
        dialect=Dialect("gemini", reasoning_back="extra"), context={r"gemini": 1_048_576})
    add("deepseek", base_url="https://api.deepseek.com/v1", keys=("DEEPSEEK_API_KEY",), guesses=r"deepseek",
        dialect=Dialect("deepseek", reasoning_back="content"), context={r"deepseek": 128_000})
    add("xai", base_url="https://api.x.ai/v1", keys=("XAI_API_KEY",), guesses=r"grok", aliases=("x-ai", "grok"),
        context={r"grok-4-fast|grok-4\.1-fast": 2_000_000, r"grok-4": 256_000})
    add("mistral", base_url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",), aliases=("mistralai",),
        guesses=r"mistral|ministral|codestral|magistral|devstral|pixtral", context={r"codestral": 256_000},
        dialect=Dialect("mistral", include_usage=False, nine_letter_ids=True))
    add("kimi", base_url="https://api.moonshot.ai/v1", keys=("KIMI_API_KEY", "MOONSHOT_API_KEY"),
        guesses=r"kimi|moonshot", aliases=("moonshot", "moonshotai"), context={r"kimi-k2": 256_000},
        dialect=Dialect("kimi", reasoning_back="content"))
    add("zai", base_url="https://api.z.ai/api/paas/v4", keys=("ZAI_API_KEY", "GLM_API_KEY"), guesses=r"glm-",
        aliases=("glm", "z-ai"), context={r"glm-4\.[67]|glm-5": 200_000})
    add("groq", base_url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",), vendor_ids=True)
    add("together", base_url="https://api.together.xyz/v1", keys=("TOGETHER_API_KEY",), vendor_ids=True,
        context={r"llama-?4": 1_000_000})
    add("nous", base_url="https://inference-api.nousresearch.com/v1", keys=("NOUS_API_KEY",), vendor_ids=True,
        aliases=("nousresearch",))
    add("ollama", base_url="http://127.0.0.1:11434/v1", local=True, vendor_ids=True)
    add("lmstudio", base_url="http://127.0.0.1:1234/v1", local=True, vendor_ids=True,
        aliases=("lm-studio", "lm_studio"))
    add("llamacpp", base_url="http://127.0.0.1:8080/v1", local=True, vendor_ids=True,
        aliases=("llama.cpp", "llama-cpp"))
    add("vllm", base_url="http://127.0.0.1:8000/v1", local=True, vendor_ids=True)
    add("custom", base_url="", vendor_ids=True, aliases=("local", "openai-compatible"))
    add("demo", base_url="demo://local/v1", local=True)
    # fmt: on


_CLAUDE: Mapping[str, TokenPrices] = {
    "claude-opus-5": (5, 25, 0.5, 6.25),
    "claude-opus-4-8": (5, 25, 0.5, 6.25),
    "claude-opus-4-7": (5, 25, 0.5, 6.25),
    "claude-opus-4-6": (5, 25, 0.5, 6.25),
    "claude-opus-4-5": (5, 25, 0.5, 6.25),
    "claude-opus-4-1": (15, 75, 1.5, 18.75),
    "claude-opus-4": (15, 75, 1.5, 18.75),
    "claude-sonnet-4-6": (3, 15, 0.3, 3.75),
    "claude-sonnet-4-5": (3, 15, 0.3, 3.75),
    "claude-sonnet-4": (3, 15, 0.3, 3.75),
    "claude-3-7-sonnet": (3, 15, 0.3, 3.75),
    "claude-3-5-sonnet": (3, 15, 0.3, 3.75),
    "claude-haiku-4-5": (1, 5, 0.1, 1.25),
    "claude-3-5-haiku": (0.8, 4, 0.08, 1.0),
}
_GPT: Mapping[str, TokenPrices] = {
    "gpt-5.2": (1.75, 14, 0.175, None),
    "gpt-5.1": (1.25, 10, 0.125, None),
    "gpt-5": (1.25, 10, 0.125, None),
    "gpt-5-mini": (0.25, 2, 0.025, None),
    "gpt-5-nano": (0.05, 0.4, 0.005, None),
    "gpt-4.1": (2, 8, 0.5, None),
    "gpt-4.1-mini": (0.4, 1.6, 0.1, None),
    "gpt-4.1-nano": (0.1, 0.4, 0.025, None),
    "gpt-4o": (2.5, 10, 1.25, None),
    "gpt-4o-mini": (0.15, 0.6, 0.075, None),
    "o3": (2, 8, 0.5, None),
    "o4-mini": (1.1, 4.4, 0.275, None),
}


class _Table:
    """The rows of this process, rebuilt when plug-ins are loaded or unloaded."""

    of: Any = None
    count = -1
    rows: Mapping[str, Provider] = MappingProxyType({})
    aliases: Mapping[str, str] = MappingProxyType({})
    faults: ClassVar[dict[str, str]] = {}
    wires: ClassVar[dict[tuple[str, str, str], Wire]] = {}


def table() -> Mapping[str, Provider]:
    """Every provider by name: built-in ones, then those of plug-ins."""
    registered = plugins.get_plugin_manager().registries
    if registered is not _Table.of or len(registered.providers) != _Table.count:
        _Table.faults = {}
        made = [row for one in plugins.get_providers().values() if (row := _made(one)) is not None]
        _Table.rows = {row.name: row for row in made}
        _Table.aliases = {alias: row.name for row in reversed(made) for alias in row.aliases}
        _Table.wires = {}
        _Table.of, _Table.count = registered, len(registered.providers)
    return _Table.rows


def faults() -> Mapping[str, str]:
    """The registered providers that are left out of the table, each with the reason."""
    table()
    return _Table.faults


def known(name: Any) -> str:
    """The table's name for a provider or alias; empty for an unknown one."""
    name = str(name or "").strip().lower()
    return name if name in table() else _Table.aliases.get(name, "")


def _made(one: plugins.PluginProvider) -> Provider | None:
    """The row of a registered provider; None, with a log line, if its fields are invalid."""
    given = dict(one.fields)
    try:
        if isinstance(given.get("dialect"), Mapping):
            given["dialect"] = Dialect(one.name, **given["dialect"])
        made = Provider(name=one.name, **{**given, "aliases": tuple(given.get("aliases", ()))})
        _check(made)
    except (TypeError, re.error) as error:
        facts = {"action": "provider_refused", "plugin": one.plugin}
        said = "plug-in %s: the provider %s is left out, because a field is wrong: %s"
        _Table.faults[one.name] = str(error)
        _log.warning(said, one.plugin, one.name, error, extra=facts)
        return None
    return made


def _check(row: Provider) -> None:
    """Check the fields that are read of every row, whoever's model is asked for. Raises `TypeError` or `re.error`."""
    kinds = {"base_url": str, "base_url_variable": str, "guesses": str, "keys": list | tuple, "dialect": Dialect,
             "context": Mapping, "prices": Mapping}  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(getattr(row, name), kind):
            raise TypeError(f"{name} is {type(getattr(row, name)).__name__}")
    for name in (*row.keys, *row.aliases):
        if not isinstance(name, str):
            raise TypeError(f"{name!r:.60} is no name")
    for pattern in (row.guesses, *row.context):
        re.compile(pattern)
    for size in row.context.values():
        if type(size) is not int or size < 1:
            raise TypeError(f"context has {size!r:.60}, which is not a number of tokens")
    for price in row.prices.values():
        if not _is_price(price):
            raise TypeError(f"prices has {price!r:.60}, which is not (input, output, cache read, cache write)")


def _is_price(given: Any) -> bool:
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= 4:
        return False
    amounts = [one for at, one in enumerate(given) if one is not None or at < 2]
    return all(isinstance(one, int | float) and not isinstance(one, bool) and one >= 0 for one in amounts)


# Prefixes of vendor ids: with an aggregator these are models of its own, never another provider.
VENDORS = frozenset({
    "anthropic", "openai", "google", "deepseek", "x-ai", "mistralai", "mistral", "moonshotai", "z-ai", "nousresearch",
    "meta-llama", "qwen", "cohere", "minimax", "microsoft", "nvidia", "amazon", "perplexity", "openrouter",
})  # fmt: skip

ANTHROPIC_MAX_TOKENS = 16_384
"""The answer's limit if none is configured: Anthropic requires the field."""
DEFAULT_CONTEXT = 128_000
LOCAL_CONTEXT = 32_768
"""A local server does not report its window, so a small one is assumed."""
_NEVER_LOCAL = re.compile(r"claude|gpt-\d|o[34]\b|gemini|grok")


def context_length(provider: Provider, model: str, base_url: str = "") -> int:
    """The window of a model that has none in the configuration: from its provider's row, else from its maker's.

    A server on this machine runs the model itself, unless the model's name shows that it only passes requests on. The
    row of a plug-in's provider counts wherever its server is: it says what that server does.
    """
    bare = model.lower().rpartition("/")[2]
    counts = base_url in ("", provider.base_url) or provider.name not in plugins.built_in("providers")
    if counts and (own := _window((provider,), bare)) is not None:
        return own
    if provider.local or (is_own_machine(base_url) and not _NEVER_LOCAL.match(bare)):
        return LOCAL_CONTEXT
    return _window(table().values(), bare) or DEFAULT_CONTEXT


def _window(rows: Iterable[Provider], bare: str) -> int | None:
    return next((size for row in rows for pattern, size in row.context.items() if re.search(pattern, bare)), None)


def wire_for(endpoint: Endpoint) -> Wire:
    """The endpoint's wire, by the host of its address or else by its provider. A wire has no state."""
    rows, key = table(), (endpoint.wire, endpoint.base_url, endpoint.provider)
    if (found := _Table.wires.get(key)) is None:
        found = _Table.wires[key] = _wire(endpoint, rows)
    return found


def _wire(endpoint: Endpoint, rows: Mapping[str, Provider]) -> Wire:
    if endpoint.wire == "anthropic":
        from hermes_agent.models.anthropic import AnthropicWire

        return AnthropicWire()
    from hermes_agent.models.openai_chat import ChatWire

    host = urlsplit(endpoint.base_url).hostname
    own = (row.name for row in rows.values() if row.dialect.name and urlsplit(row.base_url).hostname == host)
    row = rows.get("kimi" if host == "api.moonshot.cn" else next(own, endpoint.provider))
    return ChatWire(row.dialect if row is not None else COMMON)
