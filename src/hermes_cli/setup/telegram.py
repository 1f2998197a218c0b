"""`hermes gateway setup PLATFORM`: from nothing to a paired owner.

For Telegram: asks for the token, verifies it, stores it in `.env`, and pairs the owner's account by a code that this
terminal shows and the owner's phone sends. For a platform of a plug-in: lists what has to be set. Every question has an
option, so the same runs without a person.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import sys
from typing import Any

from gateway import status
from gateway.config import Platform, load_gateway_config
from gateway.platforms import registry
from gateway.platforms.registry import Descriptor
from gateway.platforms.telegram import setup
from hermes_cli.framework import output, prompts, store, text
from hermes_config import config, version
from hermes_config.errors import UsageError
from hermes_state.ids import LOCAL_OWNER

_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{20,100}")
_VARIABLE = "TELEGRAM_BOT_TOKEN"
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_CHARS = 8


def run(args: argparse.Namespace, *, pasted: str = "") -> None:
    """Set up the platform that was named, with the token that was `pasted`; without a name, say which there are."""
    if args.platform is None:
        for name, about in registry.known().items():
            print(f"{name:<12} {text.harmless(about.title)}")
        print("\nhermes gateway setup NAME sets one up.")
        return
    about = registry.descriptor(args.platform.strip().lower())
    if missing := about.missing_packages():
        hint = version.adding(*missing, extra=about.extra)
        raise registry.PlatformUnusable(f"{about.title} needs {', '.join(missing)}", hint=hint)
    if about.name == "telegram":
        _telegram(args, about, pasted)
    else:
        _explain(about)


def _explain(about: Descriptor) -> None:
    """Print what has to be set for a platform that has no steps of its own."""
    print(text.harmless_block(f"{about.title}\n{about.setup_help}").rstrip())
    for field in about.fields:
        where = field.env or f"platforms.{about.name}.{field.key}"
        print(f"  {text.harmless(where):<34} {text.harmless(field.help)}{' (needed)' if field.required else ''}")


# -- Telegram ----------------------------------------------------------------------------------------------------------


def _telegram(args: argparse.Namespace, about: Descriptor, pasted: str) -> None:
    loaded = config.load()
    token, bot, anew = _met(args, loaded, about, pasted)
    extra = _extra(loaded)
    print(f"The token is good: it is {text.harmless(bot.name)} (@{text.harmless(bot.username)}).")
    _keep(token, loaded, replaces=args.yes or anew)
    if bot.webhook:
        _take_over(args, token, extra, bot)
    if args.owner is not None:
        _make_owner(_owner_id(args.owner), name=None)
    elif not args.no_pair:
        _pair(args, token, extra, bot)
        return
    _next()


def _met(
    args: argparse.Namespace, loaded: config.Config, about: Descriptor, pasted: str
) -> tuple[str, setup.Bot, bool]:
    """A token that Telegram knows, its bot, and whether it replaces a stored one that was refused."""
    extra, known = _extra(loaded), loaded.environ(_VARIABLE)
    if args.token is None and not pasted and known:
        print(f"Using the token that {_VARIABLE} holds.")
        try:
            return known, asyncio.run(setup.look(_looks_right(known), extra)), False
        except (setup.UnknownToken, UsageError) as error:
            if not sys.stdin.isatty():
                raise
            print(f"{error.what[:1].upper()}{error.what[1:]}.")
    token = _looks_right(pasted or _token(args, about))
    return token, asyncio.run(setup.look(token, extra)), args.token is None and bool(known)


def _token(args: argparse.Namespace, about: Descriptor) -> str:
    """The token from the option or a prompt. Never printed."""
    if args.token is not None:
        return prompts.secret_from_flag("--token", args.token, variable=_VARIABLE)
    if not sys.stdin.isatty():
        raise UsageError("there is no token, and no terminal to ask for one", hint="Give --token - and pipe it in.")
    print(about.setup_help)
    return prompts.secret("Token: ")


def _looks_right(token: str) -> str:
    if not _TOKEN.fullmatch(token.strip()):
        raise UsageError("not a valid bot token", hint="One looks like 1234567890:AA…; @BotFather shows it at /mybots.")
    return token.strip()


def _extra(loaded: config.Config) -> dict[str, Any]:
    found = load_gateway_config(loaded).platforms.get(Platform.TELEGRAM)
    return {} if found is None else found.extra


def _keep(token: str, loaded: config.Config, *, replaces: bool) -> None:
    """Store the token in `.env`, unless it is there. Another one is replaced only if the person agrees."""
    if loaded.environ(_VARIABLE) == token:
        return
    file = loaded.home / ".env"
    if not config.add_variable(_VARIABLE, token, loaded.home):
        if not replaces and loaded.dotenv.get(_VARIABLE, "").strip():
            raise UsageError(f"{_VARIABLE} holds another token already", where=str(file), hint="--yes replaces it.")
        config.put_variable(_VARIABLE, token, loaded.home)
    prompts.say_kept(_VARIABLE, token, loaded.home)


def _take_over(args: argparse.Namespace, token: str, extra: dict[str, Any], bot: setup.Bot) -> None:
    """Remove a webhook, which sends the bot's messages elsewhere, if the person agrees."""
    print(f"Telegram sends this bot's messages to {text.harmless(bot.webhook)} now.")
    prompts.confirm("Have them sent here instead?", yes=args.yes)
    asyncio.run(setup.remove_webhook(token, extra))


def _pair(args: argparse.Namespace, token: str, extra: dict[str, Any], bot: setup.Bot) -> None:

    home = config.load().home
    if status.is_running(home):
        print(
            f"A gateway runs on this home. hermes gateway restart lets it know the token; then write to @{bot.username}"
            " and do what it answers, with --owner behind it."
        )
        return
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_CHARS))
    print(f"\nNow show me which account is yours. Within {args.wait // 60 or 1} min, on your phone, open")
    print(f"  {output.style(f'https://t.me/{bot.username}?start={code}', 'bold')}")
    print(f"and press Start, or send  {output.style(f'/start {code}', 'bold')}  to @{bot.username}.", flush=True)
    owner = asyncio.run(setup.meet_owner(token, extra, code=code, seconds=args.wait))
    if owner is None:
        raise setup.MeetingFailed(
            "nobody sent the code in time", hint="The token is kept: hermes gateway setup telegram continues from here."
        )
    called = f"@{owner.username}, " if owner.username else ""
    print(f"Heard from {text.harmless(owner.name or 'somebody')} ({text.harmless(called)}id {owner.id}).")
    _make_owner(owner.id, name=owner.name or None)
    _next()


def _owner_id(given: str) -> str:
    if not given.isascii() or not given.isdigit() or given.startswith("0") or len(given) > 16:
        raise UsageError(f"{given[:40]!r} is not a Telegram id", hint="It is a number; @userinfobot tells you yours.")
    return given


def _make_owner(native_id: str, *, name: str | None) -> None:
    """Link this account to the person at this machine."""
    with store.open_store(create=True) as db:
        known = db.people.find(platform="telegram", native_id=native_id)
        if known is None or known.id == LOCAL_OWNER:
            owner = db.people.owner()
            if name and not owner.display_name:
                db.people.set_name(owner.id, name)
        else:
            owner = known
            db.people.set_role(owner.id, "owner")
        db.pairings.link(owner.id, platform="telegram", native_id=native_id)
    print(f"Telegram {native_id} is the owner: it may use every tool and decide what Hermes may do.")


def _next() -> None:
    print("\nAll set. hermes gateway start runs it; everybody else who writes is a stranger until you let them in.")
