"""`hermes gateway setup PLATFORM`: asks for the fields of a platform's descriptor and saves them.

A platform may have its own steps (`Descriptor.setup`). Otherwise set-up asks for each required field, stores secrets in
`.env` and the rest in config.yaml, enables the platform and probes it if it can. Every question has an option or a
variable, so set-up also runs without a person.
"""

from __future__ import annotations

import argparse
import sys

from gateway import status
from gateway.config import Platform, load_gateway_config
from gateway.platforms import registry
from gateway.platforms.registry import Descriptor, Field
from hermes_cli import plugins
from hermes_cli.framework import prompts, store, text
from hermes_config import config, version
from hermes_config.errors import UsageError
from hermes_state.ids import LOCAL_OWNER


def run(args: argparse.Namespace, *, pasted: str = "") -> None:
    """Set up the named platform, with the `pasted` token; without a name, list the platforms."""
    plugins.discover_plugins()
    if args.platform is None:
        for name, about in registry.known().items():
            print(f"{name:<12} {text.harmless(about.title)}")
        another = f"{registry.example()}@work"
        print(f"\nhermes gateway setup NAME sets one up; NAME@ACCOUNT, such as {another}, another account of it.")
        return
    about = registry.descriptor(args.platform.strip().lower())
    if missing := about.missing_packages():
        hint = version.adding(*missing, extra=about.extra)
        raise registry.PlatformUnusable(f"{about.title} needs {', '.join(missing)}", hint=hint)
    own_steps = about.load(about.setup)
    if own_steps:
        own_steps(args, about, pasted)
        enable(about)
    else:
        _ask(args, about, pasted)


def _ask(args: argparse.Namespace, about: Descriptor, pasted: str) -> None:
    """Ask for the missing required fields, save them and enable the platform."""
    prompts.tell(f"{about.title}\n{about.setup_help}")
    for field in about.fields:
        if not field.required or _is_set(about, field):
            continue
        value = _value(args, about, field, pasted)
        if field.env:
            keep_secret(field.env, value, config.load(), replaces=args.yes)
        else:
            config.set_value(f"platforms.{about.name}.{field.key}", value)
    config.set_value(f"platforms.{about.name}.enabled", True)
    _try(about)
    for field in about.fields:
        if not field.required:
            where = field.env or f"platforms.{about.name}.{field.key}"
            print(f"  {text.harmless(where):<34} {text.harmless(field.help)}")
    if args.owner is not None:
        make_owner(about, args.owner.strip(), name=None)
    else:
        prompts.tell("Start the gateway and write to the bot: its answer contains the command that pairs your account.")
        prompts.tell("Add --owner to that command to become the owner.")
    say_next()


def _try(about: Descriptor) -> None:
    """Probe the platform, if it has a probe, and print the result."""
    if not about.probe:
        return
    loaded = config.load()
    found = load_gateway_config(loaded).platforms[Platform(about.name)]
    try:
        prompts.tell(registry.probe(about, found, running=status.is_running(loaded.home)))
    except registry.ProbeFailed as error:
        hint = f"{error.hint} {error.fix} may help; then run this again.".strip() if error.fix else error.hint
        raise registry.PlatformUnusable(error.what, hint=hint) from None


def _value(args: argparse.Namespace, about: Descriptor, field: Field, pasted: str) -> str:
    """Return the value of a field from the option or a question. Secrets are not shown."""
    if field.key == "token" and (pasted or args.token is not None):
        return pasted or prompts.secret_from_flag("--token", args.token, variable=field.env)
    where = field.where(about.name)
    if not sys.stdin.isatty():
        hint = f"hermes config set platforms.{about.name}.{field.key} VALUE sets it."
        if field.key == "token":
            hint = "Give --token - and pipe the token in."
        elif field.secret:
            hint = f"Set {field.env or where}."
        raise UsageError(f"{where} is not set, and there is no terminal to ask for it", hint=hint)
    asked = f"{field.help[:1].upper()}{field.help[1:]}"
    value = prompts.secret(f"{asked}: ") if field.secret else prompts.question(asked, "required")
    if not value.strip():
        raise UsageError(f"{where} is required", hint=field.help)
    return value.strip()


def _is_set(about: Descriptor, field: Field) -> bool:
    loaded = config.load()
    found = load_gateway_config(loaded).platforms.get(Platform(about.name))
    return bool(field.env and loaded.environ(field.env)) or bool(found and registry.setting(found, field.key))


def enable(about: Descriptor) -> None:
    """Switch it on in config.yaml, unless it is on: a token alone switches on a platform, and not an account of it."""
    found = load_gateway_config(config.load()).platforms.get(Platform(about.name))
    if found is None or not found.enabled:
        config.set_value(("platforms", about.name, "enabled"), True)


def keep_secret(variable: str, value: str, loaded: config.Config, *, replaces: bool) -> None:
    """Save a value in `.env`. A different stored value is replaced only with `replaces`."""
    if loaded.environ(variable) == value:
        return
    file = loaded.home / ".env"
    if not config.add_variable(variable, value, loaded.home):
        if not replaces and loaded.dotenv.get(variable, "").strip():
            raise UsageError(f"{variable} already holds another token", where=str(file), hint="--yes replaces it.")
        config.put_variable(variable, value, loaded.home)
    prompts.say_kept(variable, value, loaded.home)


def make_owner(about: Descriptor, native_id: str, *, name: str | None) -> None:
    """Link this account to the person at this machine."""
    with store.open_store(create=True) as db:
        known = db.people.find(platform=about.name, native_id=native_id)
        if known is None or known.id == LOCAL_OWNER:
            owner = db.people.owner()
            if name and not owner.display_name:
                db.people.set_name(owner.id, name)
        else:
            owner = known
            db.people.set_role(owner.id, "owner")
        db.pairings.link(owner.id, platform=about.name, native_id=native_id)
    prompts.tell(f"{about.title} {native_id} is the owner: this account may use every tool and approve actions.")


def say_next() -> None:
    verb = "restart" if status.is_running(config.load().home) else "start"
    prompts.tell(f"\nSet-up is done. hermes gateway {verb} runs the gateway; other people need your approval.")
