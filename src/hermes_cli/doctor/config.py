"""Checks of the configuration: the files, the model and its key, platforms, hooks, plug-ins."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial

from gateway import hooks as gateway_hooks
from gateway import status
from gateway.access.authorisation import API
from gateway.api import auth
from gateway.config import PlatformConfig, load_gateway_config
from gateway.platforms import registry
from gateway.platforms.registry import Descriptor
from hermes_agent import budget, home_inventory
from hermes_agent.execution import executor as execution
from hermes_agent.models import keys, providers
from hermes_agent.web import backends
from hermes_cli import plugins as loaded_plugins
from hermes_cli.doctor import fixes
from hermes_cli.doctor.fixes import CheckContext, CheckResult, ok, problem, problem_of, warning
from hermes_cli.framework import text
from hermes_cli.maintenance.config import notes as config_notes
from hermes_cli.plugins.discovery import PluginSettings
from hermes_cli.setup.model import try_endpoint
from hermes_config import version
from hermes_config.config import Config
from hermes_config.errors import ConfigError, HermesError
from hermes_config.sections import AuxiliarySection
from hermes_state.ids import LOCAL_OWNER

_NOTED_KEY = re.compile(r"(?P<key>[a-z_]+(?:\.[A-Za-z0-9_@-]+)+)\b")
"""At the beginning of a note: unsetting that key fixes it."""


def configuration(context: CheckContext) -> Iterator[CheckResult]:
    if context.config_error is not None:
        if context.home.is_dir() and os.access(context.home, os.X_OK):  # else the check of the folder reports it
            yield _broken(context.config_error)
        return
    assert context.config is not None, "it has an error otherwise"
    try:
        load_gateway_config(context.config)
        notes = config_notes(context.config)
    except ConfigError as error:
        yield _broken(error)
        return
    for note in notes:
        key = _NOTED_KEY.match(note)
        fix = f"hermes config unset {key['key']}" if key else "hermes config edit"
        yield warning("config", note, fix)
    if not notes:
        there = (context.home / "config.yaml").exists()
        yield ok("config", "config.yaml is valid" if there else "there is no config.yaml; Hermes uses the defaults")


def _broken(error: ConfigError) -> CheckResult:
    """Report a broken configuration. The fix removes an invalid key, or repairs a file that cannot be read."""
    unset = f"hermes config unset {shlex.quote(error.key)}"
    fix = unset if error.key and error.file.endswith("config.yaml") else "hermes config repair"
    return problem("config", f"{error.what} ({error.where})", fix, error.hint)


def inventory(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    """Check for unused entries of the home that are unsafe to ignore. The whole table is printed below the checks."""
    entries = home_inventory.of(config)
    unsafe = [one for one in entries if one.use == "unsafe"]
    for one in unsafe:
        if one.stops_start:
            advice = "Hermes does not start until you run this command."
            yield problem("inventory", f"{one.name} is not used: {one.about}", home_inventory.command([one]), advice)
    if accepted := [one.name for one in unsafe if one.acknowledged]:
        yield ok("inventory", f"not used, and acknowledged in config.yaml: {', '.join(accepted)}")


def executor(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    """Report how commands are confined, the gaps of that confinement, and the command that improves it."""
    if config.approvals.mode == "off":
        says = "rm -r and the like run in the sandbox without a question: config.yaml sets approvals.mode: off"
        yield warning("approvals", says, "hermes config set approvals.mode manual")
    found = execution.sandbox_of(config)
    better = fixes.with_rights("apt install bubblewrap") if "not installed" in found.why else ""
    if found.sandbox == "bubblewrap":
        yield ok("executor", "bubblewrap confines commands")
    elif found.sandbox == "landlock":
        says = (
            f"Landlock confines commands ({found.why}); it does not protect modes and times of files outside the"
            " workspace, and commands can see the names of hidden files"
        )
        yield warning("executor", says, better, found.advice)
    elif found.runner is not None:
        yield ok("executor", f"commands run in {text.harmless(found.said)}: config.yaml names a plug-in's executor")
    elif found.sandbox == "none":
        yield warning(
            "executor",
            f"no confinement works here, so Hermes asks before every command ({found.why})",
            better,
            found.advice,
        )
    else:
        says = "commands run without a sandbox: config.yaml sets executor: host"
        yield warning("executor", says, "hermes config set executor confined")


def model(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    try:
        endpoint = providers.primary(config)
    except ConfigError as error:  # no model, or no key for it: set-up asks for both
        yield problem("model", f"{error.what} ({error.where})", "hermes setup", error.hint)
        return
    if context.online:
        try:
            try_endpoint(endpoint)
        except HermesError as error:
            says = f"{endpoint.provider}/{endpoint.model} does not answer: {error.what}"
            yield problem("model", says, "hermes setup", error.hint)
            return
    key = f", key from {'; '.join(told)}" if (told := keys.described(endpoint)) else ""
    yield ok("model", f"{endpoint.provider}/{endpoint.model}{key}{', answers' if context.online else ''}")


def other_models(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    """The models of `auxiliary` and of single chats: nobody notices a wrong one before it is needed."""
    wanted: list[tuple[str, Callable[[], object]]] = [
        (f"auxiliary.{task}", partial(providers.auxiliary, config, task)) for task in AuxiliarySection.settings
    ]
    try:
        platforms = load_gateway_config(config).platforms
    except ConfigError:
        return  # the check of the gateway's settings reports it
    for platform, settings in platforms.items():
        for chat, one in settings.channel_overrides.items():
            where = f"platforms.{platform.value}.channel_overrides.{chat}"
            if one.model or one.provider:
                wanted.append((where, partial(providers.primary, config, model=one.model, provider=one.provider)))
    for where, find in wanted:
        try:
            find()
        except ConfigError as error:
            yield problem("model", f"{where}: {error.what}", "hermes config edit", error.hint)


def prices(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    try:
        missing = budget.unpriced(config)
    except ConfigError:
        return  # the check of the model reports it
    if missing is not None:
        what, hint, command = missing
        yield problem("budget", what, command, hint)


def web(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    """Report which search engine is used, or how to get one."""
    import importlib.util

    engine, wanted = backends.backend_of(config), config.web.search_backend
    if wanted and not engine:
        says = f"web.search_backend names {text.harmless(wanted)}, which is not configured, so there is no web_search"
        yield warning("web", says, "hermes config unset web.search_backend", backends.HOW)
        return
    pdf = "" if importlib.util.find_spec("pypdf") else f"; to read PDF files too: {version.adding(extra='web')}"
    has = f"the web is searched with {engine}" if engine else f"no search engine, so no web_search. {backends.HOW}"
    yield ok("web", f"{has}{pdf}")


def platforms(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    try:
        gateway = load_gateway_config(config)
    except ConfigError:
        return  # the check of the configuration reports it
    on = [(name.value, one) for name, one in gateway.platforms.items() if one.enabled]
    for name in gateway.unknown_platforms:
        off, error = f"hermes config set {shlex.quote(f'platforms.{name}.enabled')} false", registry.no_such(name)
        yield problem(f"platform {text.harmless(name)}", error.what, off, error.hint)
    if not on:
        yield ok("platforms", f"no platform is connected; hermes gateway setup {registry.example()} connects one")
    for name, one in on:
        check = f"platform {name}"
        try:
            about = registry.descriptor(name)
        except HermesError as error:
            off = f"hermes config set platforms.{name}.enabled false"
            yield problem(check, error.what, off, error.hint)
            continue
        if missing := about.missing_packages():
            fix = version.adding(*missing, extra=about.extra)
            yield problem(check, f"{about.title} needs {', '.join(missing)}", fix)
        elif one.problem:
            yield problem(check, one.problem, f"hermes config set platforms.{name}.enabled false")
        elif unset := about.missing_fields(one):
            says = f"{about.title} is enabled but has no {unset[0].key.rpartition('.')[2]}"
            off = f"or hermes config set platforms.{name}.enabled false"
            yield problem(check, says, f"hermes gateway setup {name}", off)
        elif context.online and about.probe:
            yield _probed(context, check, about, one)
        else:
            there = "the token is set" if one.token else "all required settings are set"
            yield ok(check, there + ("; --online tests it" if about.probe and not context.online else ""))


def _probed(context: CheckContext, check: str, about: Descriptor, one: PlatformConfig) -> CheckResult:
    """Test the connection to a platform."""
    try:
        said = registry.probe(about, one, running=status.is_running(context.home))
    except registry.ProbeFailed as error:
        return problem(check, text.harmless(error.what), error.fix, error.hint)
    except HermesError as error:
        return problem_of(check, error)
    return ok(check, text.harmless(said))


def api(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    """Report the roles of the HTTP API keys. In older homes every key was the owner's."""
    try:
        found = auth.all_configured(config)
    except ConfigError as error:
        fix = f"hermes config unset {shlex.quote(error.key)}"
        yield problem("api", f"{error.what} ({error.where})", fix, "hermes api key makes a valid one.")
        return
    client, owner = auth.VARIABLES["client"], auth.VARIABLES["owner"]
    may = "its own conversations, no terminal, no files, no approvals"
    if "client" in found and "owner" not in found and _was_the_owners(context, found["client"]):
        says = f"{client} was the owner's key; the next start of the gateway makes it a client key: {may}"
        advice = "A program that only chats needs no change. For terminal, files and /api/ws, give it the owner key."
        yield warning("api", says, "hermes api key --role owner", advice)
    elif "client" in found:
        more = f"{owner} is the owner's" if "owner" in found else "hermes api key --role owner makes an owner key"
        yield ok("api", f"{client} is a client key ({may}); {more}")
    elif "owner" in found:
        yield ok("api", f"{owner} is the owner's key, with access to terminal, files and /api/ws")


def _was_the_owners(context: CheckContext, key: str) -> bool:
    if context.db is None:
        return False
    try:
        person = context.db.people.find(platform=API, native_id=auth.key_id(key))
    except HermesError:
        return False  # the check of the database reports it
    return person is not None and person.id == LOCAL_OWNER


def hooks(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    try:
        enabled = gateway_hooks.enabled_hooks(config)
    except ConfigError as error:
        yield _broken(error)
        return
    for name in gateway_hooks.hooks_off(config):
        says = f"the hook {text.harmless(name)} is not loaded"
        yield warning("hooks", says, gateway_hooks.how_to_enable(name, enabled))


def plugins(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    try:
        settings = PluginSettings.of(config)
    except ConfigError as error:
        yield _broken(error)
        return
    manager = loaded_plugins.get_plugin_manager()
    manager.discover(force=True, packages=True)
    for row in manager.plugins.values():
        if row.state == "failed":
            name = row.found.key
            says = f"{name} could not be loaded: {row.reason}"
            yield problem("plugins", says, f"hermes plugins disable {shlex.quote(name)}")
    for name in manager.missing:
        kept = ", ".join(sorted(settings.enabled - {name}))
        fix = f"hermes config set plugins.enabled {shlex.quote(f'[{kept}]')}"
        yield problem("plugins", f"{name} is enabled, but there is no such plug-in", fix)
    if not manager.missing and all(row.state != "failed" for row in manager.plugins.values()):
        yield ok("plugins", f"{text.counted(len(settings.enabled), 'plug-in')} enabled")


def mcp_servers(context: CheckContext, config: Config) -> Iterator[CheckResult]:
    if not config.mcp_servers:
        return
    from hermes_agent.mcp import connection, servers, source

    broken = set()
    for name, one in servers.configured(config).items():
        if one.settings.enabled and servers.HOST in one.settings.needs:
            fix = f"hermes config set mcp_servers.{name}.needs '[]'"
            yield warning("mcp", f"{name} runs without a sandbox: its needs name host", fix)
        try:
            one.check()
            one.opening()
            if one.settings.enabled and one.settings.command:
                one.program()
        except HermesError as error:
            broken.add(name)
            fix = f"hermes config unset mcp_servers.{shlex.quote(name)}"
            yield problem("mcp", f"{name}: {error.what}", fix, error.hint)
    for name, state, words in source.described(config):
        says = f"{name}: {words}"
        if name in broken:
            continue
        if state == "needs login":
            yield warning("mcp", says, f"hermes mcp login {name}")
        elif state == "retrying" or (state == "off" and " since " in words and connection.LAZY not in words):
            yield warning("mcp", says, f"hermes mcp test {name}")
        else:
            yield ok("mcp", says)
