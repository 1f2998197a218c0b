"""Methods that complete input, and read and change settings. No answer ever contains a secret."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import mentions, sync_loop
from hermes_agent.commands import registry
from hermes_agent.models import model_list, provider_table, providers
from hermes_config import config as configuration
from hermes_config import redaction
from hermes_config.errors import ConfigError, HermesError
from tui_gateway.rpc.method import ANY_SID, MethodParam, method
from tui_gateway.session import session_view
from tui_gateway.session.services import RpcCall
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Result, RpcError

if TYPE_CHECKING:
    from hermes_config.config import Config

_SHOWN = 50
_SETTINGS = {
    "skin": "display.skin", "indicator": "display.indicator",
    "reasoning": "agent.reasoning_effort", "busy": "display.busy_input_mode",
    "verbose": "display.tool_progress", "approvals.mode": "approvals.mode", "details_mode": "display.details_mode",
    "thinking_mode": "display.thinking_mode", "compact": "display.compact", "statusbar": "display.statusbar",
    "mouse": "display.mouse",
}  # fmt: skip
"""A client's name of a setting, and its key in config.yaml."""


# -- completion ------------------------------------------------------------------------------------------------


@method(
    "complete.slash", MethodParam("text", "text", required=True), result="items [{text, display, meta}], replace_from",
    pooled=True,
)  # fmt: skip
def _slash(call: RpcCall) -> Result:
    """Commands with this beginning."""
    text = str(call.params.get("text") or "")
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


@method(
    "complete.path", MethodParam("word", "text", required=True), ANY_SID, MethodParam("cwd", "text"),
    result="items [{text, display, meta}], replace_from", pooled=True,
)  # fmt: skip
def _path(call: RpcCall) -> Result:
    """Files with this beginning; `@` and `@file:` before the path stay, and `@"` around one with spaces."""
    folder = Path(str(call.params.get("cwd") or _cwd(call)))
    found = mentions.offers(str(call.params.get("word") or ""), folder, os.environ)
    items = [{"text": one.text, "display": one.name, "meta": "folder" if one.is_folder else ""} for one in found]
    return {"items": items, "replace_from": 0}


def _cwd(call: RpcCall) -> str:
    return str(call.session["cwd"]) if call.sid else str(Path.cwd())


# -- settings --------------------------------------------------------------------------------------------------


@method(
    "config.get", MethodParam("key", "text", required=True), ANY_SID, result="key, value", errors=(4002, 4001)
)  # fmt: skip
def _get(call: RpcCall) -> Result:
    """Read a setting: model, provider, busy, reasoning, verbose, skin, approvals.mode, yolo, cwd, mtime, full …"""
    key, config = call.word("key"), configuration.load_or_last_good()[0]
    return {"key": key, "value": _value(call, key, config)}


def _value(call: RpcCall, key: str, config: Config) -> Any:
    match key:
        case "model" | "provider":
            return _model(call, config)[key]
        case "yolo":
            return call.live.yolo
        case "cwd":
            return _cwd(call)
        case "profile":
            return "default"
        case "mtime":
            file = config.home / "config.yaml"
            return file.stat().st_mtime if file.exists() else 0.0
        case "full":
            return redaction.presentable(config.tree)
    if key not in _SETTINGS:
        raise RpcError(frames.UNKNOWN_KEY, f"there is no setting {key[:60]!r}")
    value: Any = config.tree
    for name in _SETTINGS[key].split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return redaction.presentable(value)


@method(
    "config.set", MethodParam("key", "text", required=True), MethodParam("value", "any", required=True), ANY_SID,
    MethodParam("scope", "text"), result="key, value, scope?", errors=(4001, 4002, 4004, 4009),
)  # fmt: skip
def _set(call: RpcCall) -> Result:
    """Change a setting. The model of a session is for that session unless scope is global."""
    key, value = call.word("key"), call.params.get("value")
    where = {**_SETTINGS, "model": "model.default"}.get(key)
    try:
        if key == "model" and call.sid and call.params.get("scope") != "global":
            live = call.idle()
            sync_loop.run(live.use_model(str(value)))
            session_view.tell(call.services, call.sid, call.session)
            return {"key": key, "value": live.model, "scope": "session"}
        if key == "yolo":
            live = call.idle()
            live.set_yolo(bool(value))
            return {"key": key, "value": live.yolo, "scope": "session"}
        if where is None:
            raise RpcError(frames.UNKNOWN_KEY, f"{key[:60]!r} cannot be set here; hermes config set can")
        configuration.set_value(where, value)
    except HermesError as error:
        raise RpcError(frames.BAD_VALUE, error.one_line()) from error
    return {"key": key, "value": value, "scope": "global"}


# -- models ----------------------------------------------------------------------------------------------------


def _offered(call: RpcCall, config: Config) -> list[str]:
    """The models of the current model's server, the configured one first if it is among them."""
    try:
        endpoint = call.live.asked_endpoint() if call.sid else providers.primary(config)
        default = providers.primary(config)
    except ConfigError:
        return []
    own = [default.model] if default.provider == endpoint.provider else []
    return [*own, *model_list.listed(endpoint)]


def _model(call: RpcCall, config: Config) -> dict[str, str]:
    if call.sid:
        agent = call.session["agent"]
        model, provider = call.live.endpoint() if agent is None else (agent.model, agent.provider)
        return {"model": model, "provider": provider}
    try:
        found = providers.primary(config)
    except ConfigError:
        return {"model": "", "provider": ""}
    return {"model": found.model, "provider": found.provider}


@method(
    "model.options", ANY_SID, MethodParam("include_unconfigured", "flag"),
    result="model, provider, providers [{name, configured, current, models}]", errors=(4001,), pooled=True,
)  # fmt: skip
def _options(call: RpcCall) -> Result:
    """The configured providers, the current model, and its server's models."""
    config = configuration.load_or_last_good()[0]
    current = _model(call, config)
    rows = []
    for row in provider_table.table().values():
        configured = row.local or not row.keys or any(config.environ(name) for name in row.keys)
        here = row.name == current["provider"]
        if configured or call.params.get("include_unconfigured") or here:
            models = list(dict.fromkeys([current["model"], *_offered(call, config), *config.models])) if here else []
            rows.append({"name": row.name, "configured": configured, "current": here, "models": models})
    return {**current, "providers": rows}


@method("setup.status", result="provider_configured", pooled=True)
def _setup_status(call: RpcCall) -> Result:
    """Whether a model is configured."""
    return {"provider_configured": bool(_runtime(RpcCall(call.services, {}))["ok"])}


@method(
    "setup.runtime_check", MethodParam("provider", "text"), result="ok, provider, model, source, error?", pooled=True
)  # fmt: skip
def _runtime(call: RpcCall) -> Result:
    """The model that a prompt would use, or why there is none."""
    try:
        found = providers.primary(configuration.load(), provider=call.word("provider") or None)
    except ConfigError as error:
        return {"ok": False, "provider": "", "model": "", "source": "", "error": error.one_line()}
    return {"ok": True, "provider": found.provider, "model": found.model, "source": found.key_from}
