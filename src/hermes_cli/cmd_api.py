"""`hermes api`: the keys of the HTTP server. Nothing else ever shows them."""

from __future__ import annotations

import argparse
import os
import sys

from hermes_cli import output
from hermes_cli.parser import Parser, Verbs, add_json
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_home


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    key = verbs.add(
        "key",
        _key,
        help="print the key that clients send; made at first use, kept in .env",
        example="""hermes api key
                   curl -H "Authorization: Bearer $(hermes api key)" http://127.0.0.1:8642/v1/models
                   hermes api key --role owner
                   hermes api key --rotate""",
    )
    key.add_argument(
        "--role",
        choices=("client", "owner"),
        default="client",
        help="client: its own conversations, no terminal, files or approvals (default); owner: you",
    )
    key.add_argument("--rotate", action="store_true", help="make another one; the old one is no good any more")
    add_json(key)


def _key(args: argparse.Namespace) -> None:
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
    if args.json:
        url = f"http://{settings.host}:{settings.port}/v1"
        output.print_json({
            "key": key, "role": args.role, "new": known is None, "file": str(home / ".env"), "base_url": url,
        })  # fmt: skip
        return
    print(key)
    if known is None:
        taken = "The old one is no good any more." if args.rotate else _opens(loaded)
        whose = "An owner key: it has your terminal, files and approvals" if args.role == "owner" else "A client key"
        print(f"{whose}. It is in {home / '.env'}. {taken}", file=sys.stderr)


def _opens(loaded: config.Config) -> str:
    """What has to be done before the key opens anything: a gateway with another key takes it by itself."""
    from gateway.api import auth

    if any(auth.configured(loaded, role) for role in auth.VARIABLES):
        return "A running gateway takes it from the next request on."
    return "hermes gateway restart opens the API with it."
