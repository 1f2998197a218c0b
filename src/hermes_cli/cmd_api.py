"""`hermes api`: the key of the HTTP server. Nothing else ever shows it."""

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
                   hermes api key --rotate""",
    )
    key.add_argument("--rotate", action="store_true", help="make another one; the old one is no good any more")
    add_json(key)


def _key(args: argparse.Namespace) -> None:
    from gateway.api import keys
    from gateway.config import load_gateway_config

    home = ensure_home()
    loaded = config.load(home)
    known = keys.configured(loaded) if not args.rotate else None
    if args.rotate and keys.VARIABLE in os.environ:
        hint = "Change it there, or unset it to use the one in .env."
        raise UsageError(f"{keys.VARIABLE} comes from the environment of this process", hint=hint)
    key = keys.replace(home) if args.rotate else known or keys.make(home)
    settings = load_gateway_config(loaded).api_server
    if args.json:
        url = f"http://{settings.host}:{settings.port}/v1"
        output.print_json({"key": key, "new": known is None, "file": str(home / ".env"), "base_url": url})
        return
    print(key)
    if known is None:
        taken = "The old one is no good any more." if args.rotate else "hermes gateway restart opens the API with it."
        print(f"A new key, in {home / '.env'}. {taken}", file=sys.stderr)
