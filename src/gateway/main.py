"""The process `hermes gateway run`: the lock, the parts, the signals, and a heartbeat for `hermes gateway status`.

It refuses to be a second gateway of a home. It starts every platform that it can and logs the others. On SIGTERM or
Ctrl-C it ends when the running turns are done or `gateway.drain_seconds` are over. Unfinished work is left as after a
crash: the next start recovers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from gateway import metrics, run, status
from gateway.api import auth
from gateway.config import GatewayConfig, Platform, load_gateway_config
from gateway.platforms import registry
from gateway.services import services_of
from hermes_agent import home_inventory
from hermes_agent.execution import executor
from hermes_config import config as configuration
from hermes_config import logs
from hermes_config.errors import ConfigError, HermesError
from hermes_state import SessionDB

if TYPE_CHECKING:
    from gateway.api.server import ApiServer
    from gateway.platforms.base import BasePlatformAdapter
    from hermes_config.config import Config


_log = logging.getLogger("hermes.gateway")
_STARTING_SECONDS, _STARTING_BEAT_SECONDS = 10.0, 0.2
_PRINTED = "gateway.out"
"""What a gateway in the background prints: plug-ins and crashes; what it logs is in the log alone."""


def run_until_ended(config: Config, *, attached: bool = False) -> int:
    """Run `serve`, on uvloop where it is installed (docs/decisions/event-loop.md)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(config, attached=attached))
    return uvloop.run(serve(config, attached=attached))


async def serve(config: Config, *, attached: bool = False) -> int:
    """Run until a signal, or if `attached` until the parent process ends; returns the exit code."""
    lock = status.acquire_gateway_lock(config.home)
    try:
        logs.install("gateway.log", level=logging.INFO, screen=not logs.prints_into(_PRINTED))
        metrics.install_trace_filter()
        _discover_plugins()
        settings = load_gateway_config(config)
        await asyncio.to_thread(home_inventory.require_acknowledged, config)
        found = await asyncio.to_thread(executor.sandbox_of, config)  # raises when the configured one cannot be used
        url = config.database_url() or config.home / "state.db"
        db = SessionDB(url, synchronous=config.state.synchronous.upper(), limits=config.limits)
        facts = {"action": "executor", "sandbox": found.sandbox, "why": found.why}
        _log.info("commands run in: %s", found.sandbox, extra=facts)
        try:
            return await _serve(config, settings, db, attached=attached)
        finally:
            await asyncio.to_thread(db.close)
    finally:
        lock.close()


async def _serve(config: Config, settings: GatewayConfig, db: SessionDB, *, attached: bool) -> int:
    services = services_of(config, settings, db)
    adapters, api = _adapters(settings), _api(config, settings, db)
    if api is not None:
        adapters[Platform.API_SERVER] = api.adapter
    runner = run.GatewayRunner(services, adapters)
    if api is not None:
        api.connect(runner.parts)
    ended = _ended_by_signal()
    if attached:
        _end_with_parent(ended)
    away = status.seconds_away(config.home)
    status.write_pid_file(config.home)
    heart = asyncio.create_task(_beat(runner, api), name="heartbeat")
    try:
        await runner.start(away=away)
        _say_started(runner)
        await asyncio.to_thread(warm, config)
        if config.mcp_servers:
            await asyncio.to_thread(_connect_mcp_servers, config)
        gc.freeze()  # modules, tables and the configuration stay: a full collection need not visit them
        await ended.wait()
        text = "stopping: running turns have up to %g s; Ctrl-C once more stops now, and nothing is lost"
        _log.info(text, settings.drain_seconds, extra={"action": "stop"})
    finally:
        await runner.stop()
        if "hermes_agent.mcp.source" in sys.modules:
            await asyncio.to_thread(sys.modules["hermes_agent.mcp.source"].close)
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
    return 0


def _connect_mcp_servers(config: Config) -> None:
    from hermes_agent.mcp import source

    source.use(config, connect=True)


def _discover_plugins() -> None:
    from hermes_cli import plugins

    plugins.discover_plugins()


def _adapters(settings: GatewayConfig) -> dict[Platform, BasePlatformAdapter]:
    made: dict[Platform, BasePlatformAdapter] = {}
    for platform, config in sorted(settings.platforms.items(), key=lambda one: one[0].value):
        if not config.enabled or platform in (Platform.API_SERVER, Platform.LOCAL):
            continue  # the API server stands on the parts, and is made with them
        try:
            made[platform] = registry.make(platform, config)
        except HermesError as error:
            _log.error("%s: %s", platform.value, error.one_line(), extra={"action": "platform_unusable"})
    for name in settings.unknown_platforms:
        _log.error("platforms.%s: %s", name, registry.no_such(name).one_line(), extra={"action": "platform_unusable"})
    return made


def _api(config: Config, settings: GatewayConfig, db: SessionDB) -> ApiServer | None:
    try:
        if not auth.is_wanted(config, settings):
            return None
        from gateway.api import server  # with the web server's libraries

        return server.make(config, settings, db)
    except HermesError as error:
        _log.error("api_server: %s", error.one_line(), extra={"action": "platform_unusable"})
        return None


def _ended_by_signal() -> asyncio.Event:
    """An event that the first signal sets; a second signal ends the process at once, and nothing is lost."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        if ended.is_set():
            os._exit(130)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return ended


def _end_with_parent(ended: asyncio.Event) -> None:
    """Set the event when standard input closes, which happens when the parent process ends in any way."""
    loop = asyncio.get_running_loop()

    def listen() -> None:
        while os.read(0, 4_096):
            pass
        with contextlib.suppress(RuntimeError):  # the loop ended before
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=listen, daemon=True, name="attached").start()


def _say_started(runner: run.GatewayRunner) -> None:
    names = ", ".join(platform.value for platform in runner.adapters) or "none"
    home = runner.parts.services.home
    _log.info("the gateway of %s is running; platforms: %s", home, names, extra={"action": "start"})


async def _beat(runner: run.GatewayRunner, api: ApiServer | None) -> None:
    """Write the heartbeat for `hermes gateway status`, and measure the event loop's lag."""
    services, began, lag = runner.parts.services, time.time(), runner.parts.services.metrics.loop_lag
    while True:
        health = runner.parts.connections.health()
        platforms = {
            name: {"last_contact": one.last_contact, "problem": one.problem, "retry_at": one.retry_at}
            for name, one in health.items()
        }
        broken = configuration.load_or_last_good(services.home)[1]
        facts = {
            "gateway_state": "draining" if runner._draining else "running", "started_at": began,
            "platforms": platforms, "draining": runner._draining, "turns_running": len(runner._running_agents),
            "api": None if api is None else api.address or None,
            "config_problem": None if broken is None else broken.one_line(),
        }  # fmt: skip
        try:
            await asyncio.to_thread(logs.bound_printed, _PRINTED)
            await asyncio.to_thread(functools.partial(status.write_runtime_status, services.home, **facts))
        except OSError as error:  # a full disk is temporary, and the heartbeat must go on after it
            _log.warning("cannot write the heartbeat (%s)", error.strerror, extra={"action": "heartbeat"})
        # Right after a start the heartbeat is faster, so that the status shows the first contact with a platform.
        starting = time.time() - began < _STARTING_SECONDS and not all(one.last_contact for one in health.values())
        pause = _STARTING_BEAT_SECONDS if starting else status.HEARTBEAT_SECONDS
        due = time.monotonic() + pause
        await asyncio.sleep(pause)
        lag.observe(max(0.0, time.monotonic() - due))


_LATE = (
    "hermes_agent.models.http", "hermes_agent.titles",
    "hermes_agent.tools.output", "hermes_agent.tools.paths", "hermes_agent.tools.registry",
)  # fmt: skip
"""Modules that a turn imports at first use."""


def warm(config: Config) -> None:
    """Import the modules of a first turn: the HTTP client alone takes longer to import than a whole turn.

    This runs in a thread after the start, which it would delay. A missing model is no error here.
    """
    from hermes_agent.models import http, provider_table, providers

    for name in _LATE:
        importlib.import_module(name)
    try:
        endpoint = providers.primary(config)
    except ConfigError as error:
        _log.info("no model is configured: %s", error.one_line(), extra={"action": "warm"})
        return
    provider_table.wire_for(endpoint)
    if endpoint.base_url.startswith("https:"):
        http.tls_context()
