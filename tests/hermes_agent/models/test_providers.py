"""From config.yaml, .env and the command line to an endpoint, and what a mistake is answered with."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.models import prices, providers
from hermes_agent.models.base import Endpoint, is_own_machine
from hermes_config import config
from hermes_config.config import Config
from hermes_config.errors import ConfigError

KEYS = "OPENROUTER_API_KEY=or-key\nANTHROPIC_API_KEY=an-key\nOPENAI_API_KEY='oa-key '\nDEEPSEEK_API_KEY=ds-key\n"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL")) or name == "OLLAMA_HOST"]:
        monkeypatch.delenv(name)


def load(home: Path, text: str, env: str = KEYS) -> Config:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text)
    (home / ".env").write_text(env)
    return config.load(home)


def shown(endpoint: Endpoint) -> tuple[str, str, str]:
    return endpoint.provider, endpoint.model, endpoint.api_key


def test_a_home_of_the_reference_selects_its_model(home: Path) -> None:
    text = "model:\n  default: anthropic/claude-sonnet-4.6\n  provider: openrouter\n  context_length: 200000\n"
    endpoint = providers.primary(load(home, text))
    assert shown(endpoint) == ("openrouter", "anthropic/claude-sonnet-4.6", "or-key")
    assert (endpoint.base_url, endpoint.wire) == ("https://openrouter.ai/api/v1", "chat")
    assert (endpoint.context_length, endpoint.max_tokens) == (200_000, None)
    assert endpoint.key_from == "OPENROUTER_API_KEY in .env"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: demo", ("demo", "demo", "")),
        ("model: {default: claude-sonnet-4-6, provider: anthropic}", ("anthropic", "claude-sonnet-4-6", "an-key")),
        ("model: {default: anthropic/claude-x, provider: anthropic}", ("anthropic", "claude-x", "an-key")),
        ("model: {default: gpt-5, provider: OpenAI}", ("openai", "gpt-5", "oa-key")),
        ("model: {default: deepseek-chat, provider: deepseek}", ("deepseek", "deepseek-chat", "ds-key")),
        ("model: {default: llama3, provider: ollama}", ("ollama", "llama3", "")),
        ("model: ollama/llama3", ("ollama", "llama3", "")),
        ("model: anthropic/claude-x", ("openrouter", "anthropic/claude-x", "or-key")),
        ("model: claude-x", ("anthropic", "claude-x", "an-key")),
        ("model: {default: gpt-5, provider: auto}", ("openai", "gpt-5", "oa-key")),
        ("model: {default: openrouter/auto, provider: openrouter}", ("openrouter", "openrouter/auto", "or-key")),
        ("model: {default: my-model, base_url: 'http://127.0.0.1:9/v1'}", ("custom", "my-model", "")),
        ("model: {default: m, provider: custom, base_url: 'http://h/v1/', api_key: k}", ("custom", "m", "k")),
        ("model: {default: m, provider: custom, base_url: 'https://api.openai.com/v1'}", ("custom", "m", "oa-key")),
        ("model: {default: m, base_url: 'http://h/v1', key_env: DEEPSEEK_API_KEY}", ("custom", "m", "ds-key")),
        ("model: {default: m, provider: mine}\ncustom_providers: [{name: Mine, base_url: 'http://h/v1', api_key: z}]",
         ("custom", "m", "z")),
    ],
)  # fmt: skip
def test_what_a_configuration_means(home: Path, text: str, expected: tuple[str, str, str]) -> None:
    assert shown(providers.primary(load(home, text))) == expected


def test_without_an_aggregators_key_the_maker_itself_is_asked(home: Path) -> None:
    endpoint = providers.primary(load(home, "model: anthropic/claude-x", "ANTHROPIC_API_KEY=an-key"))
    assert shown(endpoint) == ("anthropic", "claude-x", "an-key")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"model": "openai/gpt-5"}, ("openrouter", "openai/gpt-5", "or-key")),
        ({"model": "gpt-5", "provider": "openai"}, ("openai", "gpt-5", "oa-key")),
        ({"model": "ollama/llama3"}, ("ollama", "llama3", "")),
        ({"model": "openrouter/openai/gpt-5"}, ("openrouter", "openai/gpt-5", "or-key")),
        ({"model": "demo"}, ("demo", "demo", "")),
        ({"provider": "anthropic"}, ("anthropic", "claude-x", "an-key")),
    ],
)
def test_the_command_line_wins(home: Path, words: dict[str, str], expected: tuple[str, str, str]) -> None:
    loaded = load(home, "model: {default: anthropic/claude-x, provider: openrouter, context_length: 7777}")
    endpoint = providers.primary(loaded, **words)
    assert shown(endpoint) == expected
    assert endpoint.context_length != 7777 or "model" not in words, "the window was the other model's"


def test_at_a_maker_a_prefix_chooses_another(home: Path) -> None:
    loaded = load(
        home, "model: {default: claude-x, provider: anthropic, base_url: 'https://proxy.example.org', api_key: mine}"
    )
    assert providers.primary(loaded).base_url == "https://proxy.example.org"
    other = providers.primary(loaded, model="openai/gpt-5")
    assert shown(other) == ("openai", "gpt-5", "oa-key"), "a key never goes to another provider"
    assert other.base_url == "https://api.openai.com/v1"
    assert providers.primary(loaded, model="claude-y").api_key == "mine"


def test_the_environment_wins_over_dotenv_and_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-shell")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    endpoint = providers.primary(load(home, "model: {default: gpt-5, provider: openai}"))
    assert (endpoint.api_key, endpoint.key_from) == ("from-shell", "OPENAI_API_KEY in the environment")
    assert endpoint.base_url == "http://127.0.0.1:1/v1"


def test_the_wire_can_be_said_or_seen(home: Path) -> None:
    custom = "model: {{default: m, provider: custom, base_url: '{}'{}}}"
    assert providers.primary(load(home, custom.format("https://api.deepseek.com/anthropic", ""))).wire == "anthropic"
    said = providers.primary(load(home, custom.format("http://h/v1", ", api_mode: anthropic_messages")))
    assert (said.wire, said.max_tokens) == ("anthropic", 16_384)
    assert said.base_url == "http://h", "the path of a request begins with /v1"


def test_a_model_of_anthropic_goes_there_under_the_id_it_has_there(home: Path) -> None:
    text = "model: anthropic/claude-sonnet-4.6\nmodels: {anthropic/claude-sonnet-4.6: {context_length: 5000}}"
    endpoint = providers.primary(load(home, text, "ANTHROPIC_API_KEY=an-key"))
    assert shown(endpoint) == ("anthropic", "claude-sonnet-4-6", "an-key")
    assert endpoint.context_length == 5000, "as the person wrote it"
    through = providers.primary(load(home, text))
    assert shown(through)[:2] == ("openrouter", "anthropic/claude-sonnet-4.6")


def test_a_chosen_model_stays_at_the_server_that_is_configured(home: Path) -> None:
    for where in ("provider: custom, base_url: 'http://127.0.0.1:9/v1'", "base_url: 'http://127.0.0.1:9/v1'"):
        loaded = load(home, f"model: {{default: mock, {where}}}")
        for words in ({"model": "slow", "provider": "custom"}, {"model": "custom/ollama/slow"}):
            assert providers.primary(loaded, **words).base_url == "http://127.0.0.1:9/v1"
    mine = "model: {default: mock, provider: mine}\ncustom_providers: [{name: mine, base_url: 'http://127.0.0.1:9/v1'}]"
    assert providers.primary(load(home, mine), model="slow", provider="custom").base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("text", "env", "key", "words"),
    [
        ("", KEYS, "model.default", ["no model is chosen", "hermes setup", "--model demo"]),
        ("model: {default: '', provider: openai}", KEYS, "model.default", ["no model is chosen", "hermes setup"]),
        ("model: [a]", KEYS, "model", ["must be a model's name"]),
        ("model: {default: 7}", KEYS, "model.default", ["must be the name of a model"]),
        ("model: {default: gpt-5, provider: opnai}", KEYS, "model.provider", ["Did you mean openai?"]),
        ("model: {default: gpt-5, provider: zzzzzz}", KEYS, "model.provider", ["Known: ", "openrouter"]),
        ("model: {default: gpt-5, provider: openai}", "", "model.provider", ["needs a key", "OPENAI_API_KEY", ".env"]),
        ("model: {default: nosuch}", "", "model.default", ["nosuch is unknown", "PROVIDER/MODEL"]),
        ("model: {default: g, provider: gemini}", "", "model.provider", ["GEMINI_API_KEY or GOOGLE_API_KEY"]),
        ("model: {default: m, provider: custom}", KEYS, "model.base_url", ["needs the address", "http://127.0.0.1"]),
        ("model: {default: m, base_url: 'ftp://x'}", KEYS, "model.base_url", ["begins with http://"]),
        ("model: {default: m, base_url: 'localhost:8000'}", KEYS, "model.base_url", ["begins with http://"]),
        ("model: {default: gpt-5, context_length: lots}", KEYS, "model.context_length", ["number of tokens", "lots"]),
        ("model: {default: gpt-5, max_tokens: -4}", KEYS, "model.max_tokens", ["number of tokens"]),
        ("model: {default: gpt-5, api_mode: codex}", KEYS, "model.api_mode", ["chat_completions"]),
        ("model: {default: gpt-5, headers: [x]}", KEYS, "model.headers", ["must be a section"]),
        ("model: {default: m, base_url: 'http://h/v1', key_env: NOPE_KEY}", KEYS, "model.provider", ["NOPE_KEY"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_key(home: Path, text: str, env: str, key: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        providers.primary(load(home, f"# first\n{text}\n", env))
    error = caught.value
    line = error.one_line()
    assert error.key == key
    assert all(word in line for word in words), line
    assert "\n" not in line
    assert error.line == (2 if text else 0)
    assert not any(secret in line for secret in ("or-key", "an-key", "oa-key"))


def test_fallbacks_in_order_without_those_that_have_no_key(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "model: {default: gpt-5, provider: openai}\n"
        "fallback_providers:\n"
        "  - {provider: anthropic, model: claude-x, max_tokens: 100}\n"
        "  - {provider: groq, model: llama}\n"
        "  - openrouter/openai/gpt-5\n"
        "fallback_model: {provider: deepseek, model: deepseek-chat}\n"
    )
    with caplog.at_level(logging.WARNING):
        found = providers.fallbacks(load(home, text))
    assert [shown(one)[:2] for one in found] == [
        ("anthropic", "claude-x"), ("openrouter", "openai/gpt-5"), ("deepseek", "deepseek-chat"),
    ]  # fmt: skip
    assert "GROQ_API_KEY" in caplog.text
    assert providers.fallbacks(load(home, "model: demo")) == ()


@pytest.mark.parametrize("entry", ["[7]", "[{provider: openai}]", "7"])
def test_a_malformed_fallback_is_told(home: Path, entry: str) -> None:
    with pytest.raises(ConfigError, match="fallback_providers"):
        providers.fallbacks(load(home, f"fallback_providers: {entry}"))


def test_options_headers_and_effort_reach_the_request(home: Path) -> None:
    text = (
        "model: {default: a/b, provider: openrouter, extra_body: {temperature: 0.2}, headers: {X-Team: blue}}\n"
        "agent: {reasoning_effort: high}\n"
    )
    endpoint = providers.primary(load(home, text))
    assert endpoint.options == (("reasoning", {"effort": "high"}), ("temperature", 0.2))
    assert endpoint.headers == (("x-team", "blue"),)


@pytest.mark.parametrize("field", ["stream: false", "n: 4", "messages: []", "model: other", "tools: null"])
def test_a_field_that_only_hermes_sets_is_refused(home: Path, field: str) -> None:
    with pytest.raises(ConfigError, match=f"extra_body.{field.partition(':')[0]}.*only Hermes sets") as refused:
        providers.primary(load(home, f"model: {{default: a/b, provider: openrouter, extra_body: {{{field}}}}}"))
    assert "Remove it" in refused.value.one_line()


@pytest.mark.parametrize(
    ("provider", "model", "length"),
    [("openrouter", "anthropic/claude-x", 200_000), ("openai", "gpt-5-mini", 400_000), ("openai", "other", 128_000),
     ("ollama", "llama3", 32_768), ("gemini", "gemini-2.5-pro", 1_048_576)],
)  # fmt: skip
def test_a_window_for_every_model(home: Path, provider: str, model: str, length: int) -> None:
    loaded = load(home, f"model: {{default: {model}, provider: {provider}}}", KEYS + "GEMINI_API_KEY=g\n")
    assert providers.primary(loaded).context_length == length


@pytest.mark.parametrize(("model", "length"), [("mock", 32_768), ("deepseek-r1", 32_768), ("claude-x", 200_000)])
def test_a_server_on_this_machine_has_a_small_window_unless_it_passes_requests_on(
    home: Path, model: str, length: int
) -> None:
    loaded = load(home, f"model: {{default: {model}, provider: custom, base_url: 'http://127.0.0.1:4000/v1'}}")
    assert providers.primary(loaded).context_length == length


def test_a_models_own_window_in_the_configuration(home: Path) -> None:
    loaded = load(home, "model: {default: m, provider: openai}\nmodels: {m: {context_length: 5000}}")
    assert providers.primary(loaded).context_length == 5000


def test_nothing_secret_is_shown(home: Path) -> None:
    text = "model: {default: m, base_url: 'http://user:pass@h/v1?key=abc', api_key: canary, headers: {a: canary}}"
    endpoint = providers.primary(load(home, text))
    assert "canary" not in repr(endpoint)
    assert providers.shown_address(endpoint) == "http://h/v1"


# Prices.


def priced(home: Path, text: str) -> Any:
    loaded = load(home, text)
    return prices.price_for(loaded, providers.primary(loaded))


def test_a_price_from_the_configuration_wins(home: Path) -> None:
    text = (
        "model: {default: anthropic/claude-sonnet-4.6, provider: openrouter}\n"
        "models: {anthropic/claude-sonnet-4.6: {price: {input: 1, output: 2.5, cache_read: 0}}}\n"
    )
    price = priced(home, text)
    assert (price.input, price.output, price.cache_read, price.cache_write) == (1.0, 2.5, 0.0, None)
    assert price.source == "config.yaml"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: {default: anthropic/claude-sonnet-4.6, provider: openrouter}", (3, 15)),
        ("model: {default: claude-sonnet-4-5-20250929, provider: anthropic}", (3, 15)),
        ("model: {default: gpt-5-mini, provider: openai}", (0.25, 2)),
        ("model: {default: gpt-5-mini-2025-08-07, provider: openai}", (0.25, 2)),
        ("model: demo", (0, 0)),
        ("model: ollama/llama3", (0, 0)),
        ("model: {default: x/y:free, provider: openrouter}", (0, 0)),
        ("model: {default: gpt-5-mini-imaginary, provider: openai}", None),
        ("model: {default: claude-next, provider: anthropic}", None),
    ],
)
def test_the_shipped_table_knows_or_says_nothing(home: Path, text: str, expected: tuple[float, float] | None) -> None:
    price = priced(home, text)
    assert (price and (price.input, price.output)) == expected
    if price and price.input:
        assert prices.AS_OF in price.source


@pytest.mark.parametrize(
    "price", ["{input: 3}", "{input: x, output: 1}", "{input: -1, output: 1}", "7", "{input: true, output: 1}"]
)
def test_a_malformed_price_is_told_with_its_key(home: Path, price: str) -> None:
    with pytest.raises(ConfigError) as caught:
        priced(home, f"model: {{default: m, provider: openai}}\nmodels: {{m: {{price: {price}}}}}\n")
    assert caught.value.key.startswith("models.m.price")


def test_only_addresses_of_this_machine_are_its_own() -> None:
    """A name that begins like one belongs to somebody else, who would get the key unencrypted."""
    own = ("http://127.0.0.1:8000/v1", "http://127.3.2.1", "http://LOCALHOST/v1", "http://[::1]:9/v1")
    others = ("http://127.example.org/v1", "http://127.0.0.1.example.org", "http://localhost.example.org", "")
    assert [is_own_machine(one) for one in (*own, *others)] == [True] * 4 + [False] * 4
