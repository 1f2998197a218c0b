"""`hermes model`: which model is used, where it is, where its key comes from and what it costs. No secret is shown."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli import output, text
from hermes_cli.parser import Parser, add_json
from hermes_config import config

if TYPE_CHECKING:
    from hermes_agent.models.base import Endpoint, Price

_WIRES = {"chat": "chat completions", "anthropic": "Anthropic messages"}


def register(parser: Parser) -> None:
    parser.epilog = (
        "examples:\n  hermes model\n  hermes model --model anthropic/claude-sonnet-4.6   what that would mean"
        "\n  hermes config set model.default NAME                 change it"
    )
    parser.add_argument("-m", "--model", metavar="NAME", help="as if this one had been asked for")
    parser.add_argument("--provider", metavar="NAME", help="as if its provider had been")
    add_json(parser)
    parser.set_defaults(run=_model)


def _model(args: argparse.Namespace) -> None:
    from hermes_agent.models import providers

    loaded = config.load()
    first = _facts(loaded, providers.primary(loaded, model=args.model, provider=args.provider))
    others = [_facts(loaded, endpoint) for endpoint in providers.fallbacks(loaded)]
    if args.json:
        output.print_json({**first, "fallbacks": others})
        return
    window = f"{first['context_length']:,} tokens"
    if first["max_tokens"]:
        window += f", answers of at most {first['max_tokens']:,}"
    rows = [
        ("model", first["model"]),
        ("provider", first["provider"]),
        ("address", first["base_url"]),
        ("speaks", _WIRES[first["wire"]]),
        ("window", window),
        ("key", first["key_from"] or "none needed, or none set"),
        ("price", _price(first["price"])),
        *(("fallback", f"{one['provider']}/{one['model']}") for one in others),
    ]
    print("\n".join(f"{output.style(f'{name:<9}', 'dim')} {text.harmless(value)}" for name, value in rows))


def _facts(loaded: config.Config, endpoint: Endpoint) -> dict[str, Any]:
    from hermes_agent.models import prices, providers

    price: Price | None = prices.price_for(loaded, endpoint)
    return {**asdict(providers.describe(endpoint)), "price": None if price is None else asdict(price)}


def _price(price: dict[str, Any] | None) -> str:
    if price is None:
        return "not known; models.<name>.price in config.yaml would say it"
    if not price["input"] and not price["output"]:
        return f"nothing ({price['source']})"
    return f"${price['input']:g} in, ${price['output']:g} out for a million tokens ({price['source']})"
