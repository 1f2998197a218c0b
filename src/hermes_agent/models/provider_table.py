"""The providers we know: where they are, what they speak, which variable holds their key, and which wire they speak."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from hermes_agent.models.base import Endpoint, Wire, WireName


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where a server of chat completions departs from the common form."""

    name: str = ""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """OpenAI's newer models take only the second."""
    include_usage: bool = True
    """Mistral always tells the usage and refuses fields it does not know."""
    reasoning_back: Literal["", "details", "content", "extra"] = ""
    """What of the model's reasoning goes back with its message. OpenRouter: `reasoning_details`. DeepSeek and Kimi:
    `reasoning_content`, without which a step with tool calls is refused. Gemini: the signature on each call."""
    nine_letter_ids: bool = False
    """Mistral takes call ids of exactly nine letters and digits."""
    cache_marker: bool = False
    """OpenRouter hands a top-level `cache_control` on to Anthropic's models."""


COMMON = Dialect()


@dataclass(frozen=True, slots=True)
class Provider:
    name: str
    base_url: str
    keys: tuple[str, ...] = ()
    """The variables that may hold the key, in order. None: the place needs no key."""
    wire: WireName = "chat"
    base_url_variable: str = ""
    vendor_ids: bool = False
    """Its model ids begin with a vendor (`anthropic/claude-…`), so a prefix does not name another provider."""
    guesses: str = ""
    """Model ids that are this provider's when nobody says whose they are."""
    local: bool = False
    dialect: Dialect = COMMON


# fmt: off
_ROWS = (
    Provider("openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), vendor_ids=True,
             dialect=Dialect("openrouter", reasoning_back="details", cache_marker=True)),
    Provider("anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",), wire="anthropic",
             base_url_variable="ANTHROPIC_BASE_URL", guesses=r"claude"),
    Provider("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), base_url_variable="OPENAI_BASE_URL",
             guesses=r"gpt-|o\d|chatgpt-", dialect=Dialect("openai", max_tokens="max_completion_tokens")),
    Provider("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
             guesses=r"gemini|gemma", dialect=Dialect("gemini", reasoning_back="extra")),
    Provider("deepseek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), guesses=r"deepseek",
             dialect=Dialect("deepseek", reasoning_back="content")),
    Provider("xai", "https://api.x.ai/v1", ("XAI_API_KEY",), guesses=r"grok"),
    Provider("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",),
             guesses=r"mistral|ministral|codestral|magistral|devstral|pixtral",
             dialect=Dialect("mistral", include_usage=False, nine_letter_ids=True)),
    Provider("kimi", "https://api.moonshot.ai/v1", ("KIMI_API_KEY", "MOONSHOT_API_KEY"), guesses=r"kimi|moonshot",
             dialect=Dialect("kimi", reasoning_back="content")),
    Provider("zai", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY", "GLM_API_KEY"), guesses=r"glm-"),
    Provider("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), vendor_ids=True),
    Provider("together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), vendor_ids=True),
    Provider("nous", "https://inference-api.nousresearch.com/v1", ("NOUS_API_KEY",), vendor_ids=True),
    Provider("ollama", "http://127.0.0.1:11434/v1", local=True, vendor_ids=True),
    Provider("lmstudio", "http://127.0.0.1:1234/v1", local=True, vendor_ids=True),
    Provider("llamacpp", "http://127.0.0.1:8080/v1", local=True, vendor_ids=True),
    Provider("vllm", "http://127.0.0.1:8000/v1", local=True, vendor_ids=True),
    Provider("custom", "", vendor_ids=True),
    Provider("demo", "demo://local/v1", local=True),
)
# fmt: on
PROVIDERS: dict[str, Provider] = {row.name: row for row in _ROWS}
ALIASES = {
    "claude": "anthropic", "google": "gemini", "moonshot": "kimi", "moonshotai": "kimi", "x-ai": "xai", "grok": "xai",
    "mistralai": "mistral", "glm": "zai", "z-ai": "zai", "lm-studio": "lmstudio", "lm_studio": "lmstudio",
    "llama.cpp": "llamacpp", "llama-cpp": "llamacpp", "local": "custom", "openai-compatible": "custom",
    "nousresearch": "nous",
}  # fmt: skip
# Prefixes of vendor ids: with an aggregator these are models of its own, never another provider.
VENDORS = frozenset({
    "anthropic", "openai", "google", "deepseek", "x-ai", "mistralai", "mistral", "moonshotai", "z-ai", "nousresearch",
    "meta-llama", "qwen", "cohere", "minimax", "microsoft", "nvidia", "amazon", "perplexity", "openrouter",
})  # fmt: skip

ANTHROPIC_MAX_TOKENS = 16_384
"""For requests that name none: the field is not optional there."""
DEFAULT_CONTEXT = 128_000
LOCAL_CONTEXT = 32_768
"""A local server has the window it was started with, which it does not tell; a small one is the safe guess."""
_CONTEXT = (
    (r"claude", 200_000),
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-5", 400_000),
    (r"gpt-4o|gpt-4-turbo", 128_000),
    (r"^o[34]", 200_000),
    (r"gemini", 1_048_576),
    (r"grok-4-fast|grok-4\.1-fast", 2_000_000),
    (r"grok-4", 256_000),
    (r"kimi-k2", 256_000),
    (r"deepseek", 128_000),
    (r"glm-4\.[67]|glm-5", 200_000),
    (r"codestral", 256_000),
    (r"llama-?4", 1_000_000),
)


_NEVER_LOCAL = re.compile(r"claude|gpt-\d|o[34]\b|gemini|grok")


def context_length(provider: Provider, model: str, base_url: str = "") -> int:
    """The window of a model whose configuration does not say it: the table's, on the small side where it varies.

    A server on this machine runs the model itself, unless the model's name shows that it only passes requests on.
    """
    bare = model.lower().rpartition("/")[2]
    here = urlsplit(base_url).hostname or ""
    if provider.local or ((here in ("localhost", "::1") or here.startswith("127.")) and not _NEVER_LOCAL.match(bare)):
        return LOCAL_CONTEXT
    return next((length for pattern, length in _CONTEXT if re.search(pattern, bare)), DEFAULT_CONTEXT)


@lru_cache(maxsize=64)
def _wire(kind: WireName, base_url: str, provider: str) -> Wire:
    if kind == "anthropic":
        from hermes_agent.models.anthropic import AnthropicWire

        return AnthropicWire()
    from hermes_agent.models.openai_chat import ChatWire

    host = urlsplit(base_url).hostname
    own = (row.name for row in _ROWS if row.dialect.name and urlsplit(row.base_url).hostname == host)
    row = PROVIDERS.get("kimi" if host == "api.moonshot.cn" else next(own, provider))
    return ChatWire(row.dialect if row is not None else COMMON)


def wire_for(endpoint: Endpoint) -> Wire:
    """The endpoint's wire, by the host of its address or else by its provider. A wire has no state."""
    return _wire(endpoint.wire, endpoint.base_url, endpoint.provider)
