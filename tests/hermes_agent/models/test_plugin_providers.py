"""Providers of plug-ins that are described badly, or give no good key: they cost only themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_agent.models import keys, prices, provider_table
from hermes_agent.models.base import Endpoint, ModelError, Reply
from hermes_config import config
from hermes_testing.plugins import plugin_home

ACME = """
from datetime import datetime
from itertools import count
from hermes_agent.models.provider_table import Credential

NUMBERS = count()
HERE = dict(base_url="https://llm.acme.example/v1")

def register(ctx):
    ctx.register_provider("late", **HERE, credential=lambda config: Credential("k-1234567890", datetime.now()))
    ctx.register_provider("bytes", **HERE, credential=lambda config: Credential(b"k-1234567890"))
    ctx.register_provider("aliases", **HERE, aliases=None)
    ctx.register_provider("dialect", **HERE, dialect=None)
    ctx.register_provider("context", **HERE, context=["acme-"])
    ctx.register_provider("keys", **HERE, keys="ACME_KEY")
    ctx.register_provider("window", **HERE, context={"acme-": "big"})
    ctx.register_provider("prices", **HERE, prices={"acme-large": {"input": 1, "output": 2}})
    ctx.register_provider("half", **HERE, prices={"acme-large": (1, None, None, None)})
    ctx.register_provider("good", **HERE, aliases=["acme"], credential=lambda config: Credential("k-1234567890", 1))
    ctx.register_provider("renewed", **HERE, credential=lambda config: Credential(f"k-1234567890-{next(NUMBERS)}"))
    ctx.register_provider("dear", **HERE, context={"dear-": 256_000}, prices={"dear-one": (2.0, 8.0, 0.2, None)})
"""


@pytest.fixture(autouse=True)
def acme(home: Path) -> Iterator[None]:
    with plugin_home(home) as plugged:
        plugged.add("acme", ACME)
        plugged.load("acme")
        yield


def endpoint(provider: str) -> Endpoint:
    return Endpoint(provider=provider, wire="chat", base_url="https://llm.acme.example/v1", model="acme-large")


def test_a_row_that_would_break_the_others_is_left_out() -> None:
    rows = provider_table.table()
    bad = {"aliases", "dialect", "context", "keys", "window", "prices", "half"}
    assert {"late", "bytes", "good", "openai"} <= set(rows) and not bad & set(rows)
    assert prices.price_for(config.load(), endpoint("good")) is None
    assert provider_table.known("acme") == "good"
    assert provider_table.context_length(rows["openrouter"], "x/unheard-of") == provider_table.DEFAULT_CONTEXT
    assert provider_table.wire_for(endpoint("openai")) is not None


@pytest.mark.parametrize("provider", ["late", "bytes"])
def test_a_credential_that_makes_no_sense_is_an_error_of_the_provider_each_time(provider: str) -> None:
    for _ in range(2):
        with pytest.raises(ModelError, match=f"{provider} gave no key") as failed:
            asyncio.run(keys.with_key(endpoint(provider)))
        assert failed.value.kind == "auth"


def test_the_window_of_a_plug_ins_row_counts_on_this_machine_too() -> None:
    here = "http://127.0.0.1:9/v1"
    rows = provider_table.table()
    assert provider_table.context_length(rows["dear"], "dear-one", here) == 256_000
    assert provider_table.context_length(rows["deepseek"], "deepseek-chat", here) == provider_table.LOCAL_CONTEXT


def test_the_price_of_a_plug_in_is_not_called_one_of_our_table() -> None:
    price = prices.price_for(config.load(), replace(endpoint("dear"), model="dear-one"))
    assert price is not None and (price.input, price.source) == (2.0, "price of the plug-in")


def test_a_good_one_is_used() -> None:
    assert asyncio.run(keys.with_key(endpoint("good"))).api_key == "k-1234567890"


@pytest.mark.parametrize(("unbilled", "attempts"), [(True, 2), (False, 1)])
def test_only_a_refused_call_is_repeated_with_a_new_key(unbilled: bool, attempts: int) -> None:
    used = []

    async def attempt(keyed: Endpoint) -> Reply:
        used.append(keyed.api_key)
        raise ModelError("auth", "the key expired in the middle of the answer", unbilled=unbilled)

    with pytest.raises(ModelError):
        asyncio.run(keys.call_with_credential(endpoint("renewed"), attempt))
    assert len(set(used)) == len(used) == attempts
