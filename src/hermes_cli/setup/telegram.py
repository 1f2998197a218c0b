"""`hermes gateway setup telegram`: connects a bot and pairs its owner.

Asks for the token, verifies it, stores it in `.env`, and pairs the owner's account: the terminal shows a code and the
owner's phone sends it. Every question has an option, so set-up also runs without a person. The platform's descriptor
names this module.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import sys
from typing import Any

from gateway import status
from gateway.config import Platform, PlatformConfig, load_gateway_config
from gateway.platforms.registry import Descriptor
from gateway.platforms.telegram import setup
from hermes_cli.framework import output, prompts, text
from hermes_cli.setup import platform
from hermes_config import accounts, config
from hermes_config.errors import HermesError, UsageError

_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{20,100}")
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_CHARS = 8
_ATTEMPTS = 3


def steps(args: argparse.Namespace, about: Descriptor, pasted: str) -> None:
    """Set up the bot, with the `pasted` token if there is one."""
    loaded = config.load()
    token, bot, replaces = _verified_token(args, loaded, about, pasted)
    extra = _settings(loaded, about).extra
    prompts.tell(f"The token works. It belongs to {text.harmless(bot.name)} (@{bot.username}).")
    _require_own(about, bot, loaded)
    platform.keep_secret(_variable(about), token, loaded, replaces=args.yes or replaces)
    platform.enable(about)
    if bot.webhook:
        _remove_webhook(args, token, extra, bot)
    if args.owner is not None:
        platform.make_owner(about, _owner_id(args.owner), name=None)
    elif not args.no_pair:
        _pair(args, about, token, extra, bot)
        return
    platform.say_next()


def _verified_token(
    args: argparse.Namespace, loaded: config.Config, about: Descriptor, pasted: str
) -> tuple[str, setup.Bot, bool]:
    """Return a token that Telegram accepts, its bot, and whether it replaces a stored token that Telegram refused."""
    variable = _variable(about)
    extra, known = _settings(loaded, about).extra, loaded.environ(variable)
    if args.token is None and not pasted and known:
        print(f"Using the token in {variable}.")
        try:
            return known, asyncio.run(setup.find_bot(_checked(known), extra)), False
        except (setup.UnknownToken, UsageError) as error:
            if not sys.stdin.isatty():
                raise
            _say(error)
    if pasted or args.token is not None:
        token = _checked(pasted or prompts.secret_from_flag("--token", args.token, variable=variable))
        return token, asyncio.run(setup.find_bot(token, extra)), args.token is None and bool(known)
    return *_asked_token(about, extra), bool(known)


def _asked_token(about: Descriptor, extra: dict[str, Any]) -> tuple[str, setup.Bot]:
    """Ask for the token, again when it is wrong, and return it with its bot. It is never printed."""
    if not sys.stdin.isatty():
        raise UsageError("there is no token, and no terminal to ask for one", hint="Pipe it in with --token -.")
    prompts.tell(about.setup_help)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            token = _checked(prompts.secret("Token: " if attempt == 1 else "Token again: "))
            return token, asyncio.run(setup.find_bot(token, extra))
        except prompts.NobodyAnswers:
            raise
        except (setup.UnknownToken, UsageError) as error:
            if attempt == _ATTEMPTS:
                raise
            _say(error)
    raise AssertionError("the last attempt returns or raises")


def _say(error: HermesError) -> None:
    prompts.tell(f"{error.what[:1].upper()}{error.what[1:]}. {error.hint}".strip())


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token.strip()):
        raise UsageError("not a valid bot token", hint="It looks like 1234567890:AA…; @BotFather shows it at /mybots.")
    return token.strip()


def _variable(about: Descriptor) -> str:
    return next(field.env for field in about.fields if field.key == "token")


def _settings(loaded: config.Config, about: Descriptor) -> PlatformConfig:
    return load_gateway_config(loaded).platforms.get(Platform(about.name), PlatformConfig())


def _require_own(about: Descriptor, bot: setup.Bot, loaded: config.Config) -> None:
    """Refuse a bot that another account has already; a token begins with the number of its bot."""
    for name, one in load_gateway_config(loaded).platforms.items():
        ours = accounts.platform_of(name.value) == accounts.platform_of(about.name) and name.value != about.name
        if ours and one.enabled and (one.token or "").strip().partition(":")[0] == str(bot.id):
            hint = "Each account needs a bot of its own: /newbot at @BotFather."
            raise UsageError(f"@{bot.username} is the bot of {name.value} already; nothing was saved", hint=hint)


def _remove_webhook(args: argparse.Namespace, token: str, extra: dict[str, Any], bot: setup.Bot) -> None:
    """Ask, then remove a webhook, which sends the bot's messages to another server."""
    prompts.tell(f"Telegram now sends this bot's messages to {text.harmless(bot.webhook)}.")
    prompts.confirm("Should Telegram send them here instead?", yes=args.yes)
    asyncio.run(setup.remove_webhook(token, extra))


def _pair(args: argparse.Namespace, about: Descriptor, token: str, extra: dict[str, Any], bot: setup.Bot) -> None:
    seen = status.read_status(config.load().home)
    if seen.running and about.name in {one.name for one in seen.platforms}:  # it gets the bot's messages, not we
        prompts.tell(
            f"A gateway runs on this home. Run hermes gateway restart so that it uses the token. Then write to"
            f" @{bot.username} and run the command in its answer, with --owner added."
        )
        return
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_CHARS))
    print(f"\nNow pair your account. Within {args.wait // 60 or 1} min, on your phone, open")
    print(f"  {output.style(f'https://t.me/{bot.username}?start={code}', 'bold')}")
    print(f"and press Start, or send  {output.style(f'/start {code}', 'bold')}  to @{bot.username}.", flush=True)
    owner = asyncio.run(setup.meet_owner(token, extra, code=code, seconds=args.wait, name=about.name))
    if owner is None:
        raise setup.BotSetupFailed(
            "nobody sent the code in time",
            hint=f"The token is saved: hermes gateway setup {about.name} continues here.",
        )
    called = f"@{owner.username}, " if owner.username else ""
    prompts.tell(f"The code came from {text.harmless(owner.name or 'somebody')} ({called}id {owner.id}).")
    platform.make_owner(about, owner.id, name=owner.name or None)
    platform.say_next()


def _owner_id(given: str) -> str:
    if not given.isascii() or not given.isdigit() or given.startswith("0") or len(given) > 16:
        raise UsageError(f"{given[:40]!r} is not a Telegram id", hint="It is a number; @userinfobot tells you yours.")
    return given
