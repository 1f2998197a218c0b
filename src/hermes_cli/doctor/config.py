"""What `hermes doctor` looks at in the configuration: the files, the model and its key, platforms, plug-ins."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator

from hermes_cli.doctor import fixes
from hermes_cli.doctor.fixes import Patient, Seen, ok, problem_of
from hermes_cli.framework import text
from hermes_config.errors import ConfigError, HermesError

_NOTED_KEY = re.compile(r"(?P<key>[a-z_]+(?:\.[A-Za-z0-9_-]+)+)\b")

_LISTEN_SECONDS = 3  # another program that asks for the same messages comes back within that


def configuration(patient: Patient) -> Iterator[Seen]:
    from gateway.config import load_gateway_config
    from hermes_cli.maintenance import config

    if patient.trouble is not None:
        if patient.home.is_dir() and os.access(patient.home, os.X_OK):  # else told by the check of the folder
            yield _broken(patient.trouble)
        return
    assert patient.config is not None
    try:
        load_gateway_config(patient.config)
        notes = config.notes(patient.config)
    except ConfigError as error:
        yield _broken(error)
        return
    for note in notes:
        key = _NOTED_KEY.match(note)
        fix = f"hermes config unset {key['key']}" if key else "hermes config edit"
        yield Seen(check="config", mark="warning", says=note, fix=fix)
    if not notes:
        there = (patient.home / "config.yaml").exists()
        yield ok("config", "config.yaml is valid" if there else "no config.yaml; the defaults hold")


def _broken(error: ConfigError) -> Seen:
    """A key that cannot be is taken out; what cannot be read is put into comments, or aside."""
    unset = f"hermes config unset {shlex.quote(error.key)}"
    fix = unset if error.key and error.file.endswith("config.yaml") else "hermes config repair"
    return Seen(check="config", mark="problem", says=f"{error.what} ({error.where})", fix=fix, advice=error.hint)


def executor(patient: Patient) -> Iterator[Seen]:
    """Which wall holds commands, what it does not cover, and the command that gives a better one."""
    from hermes_agent.execution import executor as execution

    if patient.config is None:
        return
    try:
        found = execution.wall_of(patient.config)
    except HermesError as error:
        yield problem_of("executor", error)
        return
    if found.wall == "bubblewrap":
        yield ok("executor", "commands run confined by bubblewrap")
    elif found.wall == "landlock":
        says = (
            f"commands run confined by Landlock ({found.why}); it does not cover modes and times of files outside the"
            " workspace, and shows the names of hidden files"
        )
        yield Seen(check="executor", mark="warning", says=says, fix=_better_wall(found.why), advice=found.advice)
    elif found.wall == "none":
        says = f"no wall works here, so every command asks ({found.why})"
        yield Seen(check="executor", mark="warning", says=says, fix=_better_wall(found.why), advice=found.advice)
    else:
        says = "commands run without a wall: config.yaml says executor: host"
        yield Seen(check="executor", mark="warning", says=says, fix="hermes config set executor confined")


def _better_wall(why: str) -> str:
    return fixes.with_rights("apt install bubblewrap") if "not installed" in why else ""


def model(patient: Patient) -> Iterator[Seen]:
    from hermes_agent.models import providers

    if patient.config is None:
        return
    try:
        endpoint = providers.primary(patient.config)
        shown = providers.describe(endpoint)
    except ConfigError as error:  # no model, or one without its key: the one command asks for either
        yield Seen(
            check="model", mark="problem", says=f"{error.what} ({error.where})", fix="hermes setup", advice=error.hint
        )
        return
    if patient.online:
        from hermes_cli.setup import model as setup_model

        try:
            setup_model.try_endpoint(endpoint)
        except HermesError as error:
            says = f"{shown.provider}/{shown.model} does not answer: {error.what}"
            yield Seen(check="model", mark="problem", says=says, fix="hermes setup", advice=error.hint)
            return
    key = f", key from {shown.key_from}" if shown.key_from else ""
    yield ok("model", f"{shown.provider}/{shown.model}{key}{', answers' if patient.online else ''}")


def platforms(patient: Patient) -> Iterator[Seen]:
    from gateway.config import load_gateway_config
    from gateway.platforms import registry

    if patient.config is None:
        return
    try:
        gateway = load_gateway_config(patient.config)
    except ConfigError:
        return  # told by the check of the configuration
    on = [(name.value, one) for name, one in gateway.platforms.items() if one.enabled]
    if not on:
        yield ok("platforms", "none is connected; hermes gateway setup telegram connects one")
    for name, one in on:
        check = f"platform {name}"
        try:
            about = registry.descriptor(name)
        except HermesError as error:
            off = f"hermes config set platforms.{name}.enabled false"
            yield Seen(check=check, mark="problem", says=error.what, fix=off, advice=error.hint)
            continue
        if missing := about.missing_packages():
            wanted = shlex.quote(f"{fixes.origin()}[{about.extra}]") if about.extra else shlex.join(missing)
            says = f"{about.title} needs {', '.join(missing)}"
            yield Seen(
                check=check, mark="problem", says=says, fix=f"{shlex.quote(sys.executable)} -m pip install {wanted}"
            )
        elif any(field.secret and field.required for field in about.fields) and not (one.token or one.api_key):
            says = f"{about.title} is on, and there is no token"
            off = f"or hermes config set platforms.{name}.enabled false"
            yield Seen(check=check, mark="problem", says=says, fix=f"hermes gateway setup {name}", advice=off)
        elif patient.online and name == "telegram":
            yield _telegram(patient, check, one.token or "", one.extra)
        else:
            yield ok(check, "its token is there" + ("" if patient.online else "; --online tries it"))


def _telegram(patient: Patient, check: str, token: str, extra: dict[str, object]) -> Seen:
    import asyncio

    from gateway import status
    from gateway.platforms.telegram import setup

    try:
        bot = asyncio.run(setup.look(token, extra))
        if not bot.webhook and not status.is_running(patient.home):
            asyncio.run(setup.listen(token, extra, seconds=_LISTEN_SECONDS))
    except setup.UnknownToken as error:
        fix = "hermes gateway setup telegram"
        return Seen(check=check, mark="problem", says=error.what, fix=fix, advice=f"It asks for another. {error.hint}")
    except HermesError as error:
        return problem_of(check, error)
    if bot.webhook:
        says = f"Telegram sends the messages of @{text.harmless(bot.username)} elsewhere: {text.harmless(bot.webhook)}"
        return Seen(check=check, mark="problem", says=says, fix="hermes gateway setup telegram --no-pair --yes")
    return ok(check, f"Telegram knows it as @{text.harmless(bot.username)}")


def api(patient: Patient) -> Iterator[Seen]:
    """Whose the keys of the HTTP API are. In older homes every key was the owner's."""
    from gateway.api import auth

    if patient.config is None:
        return
    try:
        found = auth.all_configured(patient.config)
    except ConfigError as error:
        variable = shlex.quote(error.key)
        yield Seen(
            check="api", mark="problem", says=f"{error.what} ({error.where})", fix=f"hermes config unset {variable}",
            advice="hermes api key makes a good one.",
        )  # fmt: skip
        return
    client, owner = auth.VARIABLES["client"], auth.VARIABLES["owner"]
    may = "its own conversations, no terminal, no files, no approvals"
    if "client" in found and "owner" not in found and _was_the_owners(patient, found["client"]):
        says = f"{client} was the owner's key, and becomes a client key with the next start of the gateway: {may}"
        advice = "A program that only talks needs nothing. For terminal, files and /api/ws, give it the owner key."
        yield Seen(check="api", mark="warning", says=says, fix="hermes api key --role owner", advice=advice)
    elif "client" in found:
        more = f"{owner} is the owner's" if "owner" in found else "hermes api key --role owner makes an owner key"
        yield ok("api", f"{client} is a client key ({may}); {more}")
    elif "owner" in found:
        yield ok("api", f"{owner} is the owner's key: it has terminal, files and /api/ws")


def _was_the_owners(patient: Patient, key: str) -> bool:
    from gateway.access.authorisation import API
    from gateway.api.auth import key_id
    from hermes_cli.framework import store
    from hermes_state.ids import LOCAL_OWNER

    if not patient.has_store:
        return False
    try:
        with store.open_store() as db:
            person = db.people.find(platform=API, native_id=key_id(key))
    except HermesError:
        return False  # told by the check of the database
    return person is not None and person.id == LOCAL_OWNER


def hooks(patient: Patient) -> Iterator[Seen]:
    from gateway import hooks as found

    if patient.config is None:
        return
    try:
        enabled = found.enabled_hooks(patient.config)
    except ConfigError as error:
        yield _broken(error)
        return
    for name in found.hooks_off(patient.config):
        fix = found.how_to_enable(name, enabled)
        yield Seen(check="hooks", mark="warning", says=f"the hook {text.harmless(name)} is not loaded", fix=fix)


def plugins(patient: Patient) -> Iterator[Seen]:
    from hermes_cli import plugins as loaded
    from hermes_cli.plugins.discovery import Wishes

    if patient.config is None:
        return
    try:
        wishes = Wishes.of(patient.config)
    except ConfigError as error:
        yield _broken(error)
        return
    manager = loaded.get_plugin_manager()
    manager.discover(force=True, packages=True)
    for row in manager.plugins.values():
        if row.state == "failed":
            name = row.found.key
            says = f"{name} could not be loaded: {row.reason}"
            yield Seen(check="plugins", mark="problem", says=says, fix=f"hermes plugins disable {shlex.quote(name)}")
    for name in manager.missing:
        kept = ", ".join(sorted(wishes.enabled - {name}))
        fix = f"hermes config set plugins.enabled {shlex.quote(f'[{kept}]')}"
        yield Seen(check="plugins", mark="problem", says=f"{name} is enabled, and there is no such plug-in", fix=fix)
    if not manager.missing and all(row.state != "failed" for row in manager.plugins.values()):
        yield ok("plugins", f"{text.counted(len(wishes.enabled), 'plug-in')} enabled")
