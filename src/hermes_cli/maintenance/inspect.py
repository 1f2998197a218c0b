"""Small commands that show one thing: `hermes api`, `model` and `tools`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli import plugins
from hermes_cli.framework import output
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, add_json
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_home

if TYPE_CHECKING:
    from hermes_agent.models.base import Endpoint, Price


def register_api(parser: Parser) -> None:
    key = Verbs(parser).add(
        "key", _key, "print the API key for clients; the first call makes it and saves it in .env", "",
        '$ curl -H "Authorization: Bearer $(hermes api key)" http://127.0.0.1:8642/v1/models',
        "--role owner", "--rotate", json=True,
    )  # fmt: skip
    roles = "client: its own conversations, no terminal, files or approvals (default); owner: you"
    key.add_argument("--role", choices=("client", "owner"), default="client", help=roles)
    key.add_argument("--rotate", action="store_true", help="make another key; the old key stops working")


def _key(args: argparse.Namespace) -> CommandAnswer:
    from gateway.api import auth
    from gateway.config import load_gateway_config

    home, variable = ensure_home(), auth.VARIABLES[args.role]
    loaded = config.load(home)
    known = auth.configured(loaded, args.role) if not args.rotate else None
    if args.rotate and variable in os.environ:
        hint = "Change it there, or unset it to use the one in .env."
        raise UsageError(f"{variable} comes from the environment of this process", hint=hint)
    key = auth.replace(home, args.role) if args.rotate else known or auth.make(home, args.role)
    settings = load_gateway_config(loaded).api_server
    notes = []
    if known is None:
        taken = "The old key stops working." if args.rotate else _opens(loaded)
        whose = (
            "This is an owner key, with access to your terminal, files and approvals"
            if args.role == "owner"
            else "This is a client key"
        )
        notes.append(f"{whose}. It is in {home / '.env'}. {taken}")
    url = f"http://{settings.host}:{settings.port}/v1"
    document = {"key": key, "role": args.role, "new": known is None, "file": str(home / ".env"), "base_url": url}
    return CommandAnswer(document, key, notes=notes)


def _opens(loaded: config.Config) -> str:
    """Say when the key starts to work. A running gateway with the API open accepts a new key without a restart."""
    from gateway.api import auth

    if any(auth.configured(loaded, role) for role in auth.VARIABLES):
        return "A running gateway accepts it from the next request on."
    return "hermes gateway restart opens the API with it."


_WIRES = {"chat": "chat completions", "anthropic": "Anthropic messages"}


def register_model(parser: Parser) -> None:
    parser.add_examples(
        "", "--model anthropic/claude-sonnet-4.6   show another model",
        "$ hermes config set model.default NAME                 change it",
    )  # fmt: skip
    parser.add_argument("-m", "--model", metavar="NAME", help="show this model instead of the configured one")
    parser.add_argument("--provider", metavar="NAME", help="use this provider instead of the configured one")
    add_json(parser)
    parser.set_defaults(run=_model)


def _model(args: argparse.Namespace) -> CommandAnswer:
    from hermes_agent.models import providers

    loaded = config.load()
    first = _facts(loaded, providers.primary(loaded, model=args.model, provider=args.provider))
    others = [_facts(loaded, endpoint) for endpoint in providers.fallbacks(loaded)]
    window = f"{first['context_length']:,} tokens"
    if first["max_tokens"]:
        window += f", answers of at most {first['max_tokens']:,}"
    rows = [
        ("model", first["model"]),
        ("provider", first["provider"]),
        ("address", first["base_url"]),
        ("speaks", _WIRES[first["wire"]]),
        ("window", window),
        ("key", "; ".join(first["keys"]) or "none needed, or none set"),
        ("price", _price(first["price"])),
        *(("fallback", f"{one['provider']}/{one['model']}") for one in others),
    ]
    return CommandAnswer({**first, "fallbacks": others}, drawn=output.facts(rows, wide=10))


def _facts(loaded: config.Config, endpoint: Endpoint) -> dict[str, Any]:
    from hermes_agent.models import keys, prices, providers

    price: Price | None = prices.price_for(loaded, endpoint)
    names = ("provider", "model", "wire", "context_length", "max_tokens", "key_from")
    return {
        **{name: getattr(endpoint, name) for name in names}, "base_url": providers.shown_address(endpoint),
        "keys": keys.described(endpoint), "price": None if price is None else asdict(price),
    }  # fmt: skip


def _price(price: dict[str, Any] | None) -> str:
    if price is None:
        return "unknown; set models.<name>.price in config.yaml"
    if not price["input"] and not price["output"]:
        return f"nothing ({price['source']})"
    return f"${price['input']:g} in, ${price['output']:g} out for a million tokens ({price['source']})"


_COLUMNS = output.columns("Tool", "Toolset", "State", "What it does…")


def register_tools(parser: Parser) -> None:
    parser.add_examples("", "--platform {platform} --json", "$ hermes config set agent.disabled_toolsets '[terminal]'")
    parser.add_argument("--platform", default="cli", metavar="NAME", help="the tools of this platform (default: cli)")
    add_json(parser)
    parser.set_defaults(run=_tools)


def _tools(args: argparse.Namespace) -> CommandAnswer:
    from hermes_agent.tools import registry

    loaded = config.load()
    plugins.discover_plugins()
    registry.use_mcp_servers(loaded, look=True)
    rows = registry.tool_rows(loaded, platform=args.platform)
    cells = [(row["name"], row["toolset"], row["state"], row["description"]) for row in rows]
    return CommandAnswer(rows, drawn=output.table(_COLUMNS, cells))


def check_toolsets(names: Sequence[str], *, where: str) -> None:
    """Refuse a name that is no tool or toolset: it would silently leave the model without tools."""
    from hermes_agent.tools import registry

    plugins.discover_plugins()
    registry.use_mcp_servers(config.load(), look=True)
    tools = registry.shared().tools()
    if unknown := registry.unknown_toolsets(names, tools):
        there_are = ", ".join(registry.toolset_names(tools))
        raise UsageError(f"there is no toolset {' or '.join(unknown)}; there are {there_are}", where=where)
