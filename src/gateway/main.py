"""The process `hermes gateway run`: the lock, the parts, the signals, and a heartbeat that others can look at.

It refuses to be a second gateway of a home, starts whatever can be started (a platform that cannot be had is named and
the others run), and ends on SIGTERM or Ctrl-C when the running turns are done or `gateway.drain_seconds` are over. What
is not done by then is left as it is, exactly as after a crash: the next start takes it up.
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


def run_until_ended(config: Config, *, attached: bool = False) -> int:
    """`serve`, on uvloop where it is to be had (docs/decisions/event-loop.md); Windows has asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(config, attached=attached))
    return uvloop.run(serve(config, attached=attached))


async def serve(config: Config, *, attached: bool = False) -> int:
    """Until somebody ends it, or `attached` whoever started it is gone. The exit code."""
    lock = status.acquire_gateway_lock(config.home)
    try:
        logs.install("gateway.log", level=logging.INFO, screen=True)
        metrics.install_trace_filter()
        _discover_plugins()
        settings = load_gateway_config(config)
        await asyncio.to_thread(home_inventory.require_acknowledged, config)
        found = await asyncio.to_thread(executor.wall_of, config)  # raises when the configured one cannot be used
        url = config.database_url() or config.home / "state.db"
        db = SessionDB(url, synchronous=config.state.synchronous.upper(), limits=config.limits)
        _log.info("commands run in: %s", found.wall, extra={"action": "executor", "wall": found.wall, "why": found.why})
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
        api.over(runner.parts)
    ended = _ended_by_signal()
    if attached:
        _ended_when_left_alone(ended)
    away = status.seconds_away(config.home)
    status.write_pid_file(config.home)
    heart = asyncio.create_task(_beat(runner, api), name="heartbeat")
    try:
        await runner.start(away=away)
        _say_started(runner)
        await asyncio.to_thread(warm, config)
        gc.freeze()  # modules, tables and the configuration stay for good: a full collection need not look at them
        await ended.wait()
        told = "ending: running turns have up to %g s; Ctrl-C once more ends it now, and nothing is lost"
        _log.info(told, settings.drain_seconds, extra={"action": "stop"})
    finally:
        await runner.stop()
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
    return 0


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
    """Set at the first signal; a second one ends the process at once, and nothing is lost by that."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        if ended.is_set():
            os._exit(130)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, end)
        except NotImplementedError:  # Windows has none for loops
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(end))
    return ended


def _ended_when_left_alone(ended: asyncio.Event) -> None:
    """Standard input closes when whoever started us ends, however it ends."""
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
    _log.info("the gateway runs on %s; platforms: %s", home, names, extra={"action": "start"})


async def _beat(runner: run.GatewayRunner, api: ApiServer | None) -> None:
    """Evidence for `hermes gateway status`, and how late the loop is for the metrics."""
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
            await asyncio.to_thread(logs.bound_printed, "gateway.out")
            await asyncio.to_thread(functools.partial(status.write_runtime_status, services.home, **facts))
        except OSError as error:  # a full disk passes, and the heart must beat on after it
            _log.warning("no heartbeat was written (%s)", error.strerror, extra={"action": "heartbeat"})
        # Who asks right after a start is told of what was heard since, not of a moment before it.
        starting = time.time() - began < _STARTING_SECONDS and not all(one.last_contact for one in health.values())
        pause = _STARTING_BEAT_SECONDS if starting else status.HEARTBEAT_SECONDS
        due = time.monotonic() + pause
        await asyncio.sleep(pause)
        lag.observe(max(0.0, time.monotonic() - due))


_LATE = (
    "hermes_agent.models.http", "hermes_agent.titles",
    "hermes_agent.tools.output", "hermes_agent.tools.paths", "hermes_agent.tools.registry",
)  # fmt: skip
"""Imported by a turn at the moment of use."""


def warm(config: Config) -> None:
    """Import what a first turn would import: the HTTP client alone takes longer to import than a whole turn.

    In a thread, as soon as messages are let in: earlier it would hold up the start. A model that is not configured yet
    is no error here.
    """
    from hermes_agent.models import http, provider_table, providers

    for name in _LATE:
        importlib.import_module(name)
    try:
        endpoint = providers.primary(config)
    except ConfigError as error:
        _log.info("no model to get ready: %s", error.one_line(), extra={"action": "warm"})
        return
    provider_table.wire_for(endpoint)
    if endpoint.base_url.startswith("https:"):
        http.tls_context()
