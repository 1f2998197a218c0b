"""Methods that complete what is typed, and read and change settings. No secret is ever part of an answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import mentions, sync_loop
from hermes_agent.commands import registry
from hermes_agent.models import providers
from hermes_agent.models.provider_table import PROVIDERS
from hermes_config import config as configuration
from hermes_config import redaction
from hermes_config.errors import ConfigError, HermesError
from tui_gateway.session import session_view
from tui_gateway.session.services import RpcServices
from tui_gateway.session.services import word_of as word
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError

if TYPE_CHECKING:
    from hermes_config.config import Config
    from tui_gateway.rpc.sessions import Handler
    from tui_gateway.session.live_session import LiveSession

_SHOWN = 50
_SETTINGS = {
    "skin": "display.skin", "indicator": "display.indicator",
    "reasoning": "agent.reasoning_effort", "busy": "display.busy_input_mode",
    "verbose": "display.tool_progress", "approvals.mode": "approvals.mode", "details_mode": "display.details_mode",
    "thinking_mode": "display.thinking_mode", "compact": "display.compact", "statusbar": "display.statusbar",
    "mouse": "display.mouse",
}  # fmt: skip
"""What a client calls a setting, and its key in config.yaml."""


# -- completion ------------------------------------------------------------------------------------------------


def _slash(services: RpcServices, params: Params) -> Result:
    text = str(params.get("text") or "")
    typed = text.removeprefix("/").lower()
    if not text.startswith("/") or " " in typed:
        return {"items": [], "replace_from": len(text)}
    names = {name: row for row in registry.table("tui").values() for name in (row.name, *row.aliases)}
    items = [
        {"text": f"/{name}", "display": f"/{name} {row.args_hint}".rstrip(), "meta": row.description}
        for name, row in sorted(names.items(), key=lambda item: item[0] != item[1].name)  # aliases come last
        if name.startswith(typed)
    ]
    return {"items": items[:_SHOWN], "replace_from": 0}


def _path(services: RpcServices, params: Params) -> Result:
    folder = Path(str(params.get("cwd") or _cwd(services, params)))
    found = mentions.offers(str(params.get("word") or ""), folder, os.environ)
    items = [{"text": one.text, "display": one.name, "meta": "folder" if one.is_folder else ""} for one in found]
    return {"items": items, "replace_from": 0}


def _cwd(services: RpcServices, params: Params) -> str:
    return str(services.session(params)[1]["cwd"]) if params.get("session_id") else str(Path.cwd())


# -- settings --------------------------------------------------------------------------------------------------


def _get(services: RpcServices, params: Params) -> Result:
    key, config = word(params, "key"), configuration.load_or_last_good()[0]
    if key in _SETTINGS:
        return {"key": key, "value": redaction.presentable(_looked_up(config, _SETTINGS[key]))}
    if key in ("model", "provider"):
        return {"key": key, "value": _model(services, params, config)[key]}
    if key == "yolo":
        return {"key": key, "value": _live(services, params).yolo}
    if key == "cwd":
        return {"key": key, "value": _cwd(services, params)}
    if key == "profile":
        return {"key": key, "value": "default"}
    if key == "mtime":
        file = config.home / "config.yaml"
        return {"key": key, "value": file.stat().st_mtime if file.exists() else 0.0}
    if key == "full":
        return {"key": key, "value": redaction.presentable(config.tree)}
    raise RpcError(frames.UNKNOWN_KEY, f"there is no setting {key[:60]!r}")


def _set(services: RpcServices, params: Params) -> Result:
    key, value, everywhere = word(params, "key"), params.get("value"), params.get("scope") == "global"
    if key == "model" and not everywhere and params.get("session_id"):
        sid, session = services.session(params)
        live = _live(services, params)
        if live.busy():
            raise RpcError(frames.BUSY, "a turn runs; interrupt it first")
        try:
            sync_loop.run(live.use_model(str(value)))
        except HermesError as error:
            raise RpcError(frames.BAD_VALUE, error.one_line()) from error
        services.emit("session.info", sid, session_view.info(session))
        return {"key": key, "value": live.model, "scope": "session"}
    if key == "yolo":
        live = _live(services, params)
        if live.busy():
            raise RpcError(frames.BUSY, "a turn runs; interrupt it first")
        live.set_yolo(bool(value))
        return {"key": key, "value": live.yolo, "scope": "session"}
    if key == "model":
        where = "model.default"
    elif key in _SETTINGS:
        where = _SETTINGS[key]
    else:
        raise RpcError(frames.UNKNOWN_KEY, f"{key[:60]!r} cannot be set here; hermes config set can")
    try:
        configuration.set_value(where, value)
    except ConfigError as error:
        raise RpcError(frames.BAD_VALUE, error.one_line()) from error
    return {"key": key, "value": value, "scope": "global"}


def _live(services: RpcServices, params: Params) -> LiveSession:
    live: LiveSession = services.session(params)[1]["live"]
    return live


def _looked_up(config: Config, path: str) -> Any:
    value: Any = config.tree
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# -- models ----------------------------------------------------------------------------------------------------


def _model(services: RpcServices, params: Params, config: Config) -> dict[str, str]:
    if params.get("session_id"):
        live, agent = _live(services, params), services.session(params)[1]["agent"]
        model, provider = live.endpoint() if agent is None else (agent.model, agent.provider)
        return {"model": model, "provider": provider}
    try:
        found = providers.primary(config)
    except ConfigError:
        return {"model": "", "provider": ""}
    return {"model": found.model, "provider": found.provider}


def _options(services: RpcServices, params: Params) -> Result:
    config = configuration.load_or_last_good()[0]
    current = _model(services, params, config)
    known = list(config.models)
    rows = []
    for row in PROVIDERS.values():
        configured = row.local or not row.keys or any(config.environ(name) for name in row.keys)
        if configured or params.get("include_unconfigured") or row.name == current["provider"]:
            here = row.name == current["provider"]
            models = [
                *([current["model"]] if here else []),
                *(name for name in known if name != current["model"] and here),
            ]
            rows.append({"name": row.name, "configured": configured, "current": here, "models": models})
    return {**current, "providers": rows}


def _setup_status(services: RpcServices, params: Params) -> Result:
    return {"provider_configured": bool(_runtime(services, {})["ok"])}


def _runtime(services: RpcServices, params: Params) -> Result:
    try:
        found = providers.primary(configuration.load(), provider=word(params, "provider") or None)
    except ConfigError as error:
        return {"ok": False, "provider": "", "model": "", "source": "", "error": error.one_line()}
    return {"ok": True, "provider": found.provider, "model": found.model, "source": found.key_from}


HANDLERS: dict[str, Handler] = {
    "complete.slash": _slash,
    "complete.path": _path,
    "config.get": _get,
    "config.set": _set,
    "model.options": _options,
    "setup.status": _setup_status,
    "setup.runtime_check": _runtime,
}
