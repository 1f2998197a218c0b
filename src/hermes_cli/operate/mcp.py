"""`hermes mcp`: the MCP servers whose tools the model may use, and Hermes as one for other agents on this machine.

A server that runs here is confined. `add` proposes what it will probably need beyond its own folder, and the owner
confirms each need by name: at the terminal, or with `--needs`. Nothing that was not confirmed is opened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from hermes_cli.framework import output, prompts, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs
from hermes_config import config, logs
from hermes_config.errors import UsageError
from hermes_config.home import ensure_home

if TYPE_CHECKING:
    from hermes_agent.mcp.connection import ServerLists, ServerState
    from hermes_agent.mcp.servers import McpServer

_SERVERS = output.columns("Server", "State", "Since", "Tools", "Runs or is at…20", "Needs…10", "Reason…20")
_SECRET = re.compile(r"(token|key|secret|password|auth)", re.IGNORECASE)
_OPTIONS = ("--command", "--url", "--env", "--header", "--auth", "--needs", "--no-test")
_MOST_TOOLS = 50
_END_SECONDS = 15.0
"""How long a program that did not start in time may take to end."""


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    add = verbs.add(
        "add", _add, "add an MCP server, confirm what it needs, and try it",
        "git --command mcp-server-git --needs ~/project --args '--repository ~/project'",
        "notes --url https://notes.example/mcp --auth oauth",
        "files --command npx --needs network --args '-y @modelcontextprotocol/server-filesystem ~/files'",
        json=True,
    )  # fmt: skip
    add.add_argument("name", metavar="NAME", help="a short name; its tools are called mcp__NAME__TOOL")
    add.add_argument("--command", metavar="PROGRAM", help="the program of a server that runs here, confined")
    add.add_argument("--url", metavar="URL", help="the address of a server that is called (streamable HTTP)")
    add.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable; ${NAME} takes it from .env"
    )
    add.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="an HTTP header; ${NAME} too")
    add.add_argument("--auth", choices=("oauth",), help="the server needs a login (hermes mcp login NAME)")
    about = "what the server may use outside its sandbox: network, /folder, read:/folder, or host (no sandbox at all)"
    add.add_argument("--needs", action="append", default=[], metavar="NEED", help=about)
    add.add_argument("--no-test", action="store_true", help="only save it")
    add.add_argument(
        "--args", nargs=argparse.REMAINDER, default=[], metavar="ARG", help="its arguments, in quotes; must come last"
    )
    verbs.add("list", _list, "list the MCP servers and their state", "", "--json", json=True)
    for name, run, about, examples in (
        ("test", _test, "connect to a server now and list its tools", ("git", "git --json")),
        ("login", _login, "log in to a server (OAuth)", ("notes", "notes --no-browser")),
    ):
        verb = _named(verbs.add(name, run, about, *examples, json=True))
        if name == "login":
            verb.add_argument("--no-browser", action="store_true", help="only print the address, and paste the answer")
    _named(verbs.add("remove", _remove, "forget a server and its login", "git --yes", json=True, yes=True))
    about = "offer your conversations to another agent over stdin and stdout (MCP)"
    verbs.add("serve", _serve, about, "", "$ claude mcp add hermes -- hermes mcp serve")


def _named(parser: Parser) -> Parser:
    parser.add_argument("name", metavar="NAME", help="its name in config.yaml")
    return parser


def _server(name: str) -> McpServer:
    from hermes_agent.mcp.servers import configured
    from hermes_agent.text import close_names

    found = configured(config.load())
    if name not in found:
        near = close_names(name, list(found))
        raise UsageError(
            f"there is no MCP server {name[:60]!r}",
            hint=f"Did you mean {near[0]}?" if near else "hermes mcp list shows them, hermes mcp add adds one.",
        )
    found[name].check_name()  # files are named after it
    return found[name]


# -- add and remove ----------------------------------------------------------------------------------------------------


def _add(args: argparse.Namespace) -> CommandAnswer:
    from hermes_agent.mcp.servers import McpServer, configured, proposed_needs
    from hermes_config.sections import McpServerSection

    ensure_home()
    loaded = config.load()
    if args.name in configured(loaded):
        hint = f"To replace it: hermes mcp remove {args.name} --yes, then add it again."
        raise UsageError(f"there is an MCP server {args.name!r} already", hint=hint)
    words = shlex.split(args.args[0]) if len(args.args) == 1 else args.args
    words = [os.path.expanduser(word) for word in words]  # noqa: PTH111 - a word need not be a path
    env, headers = _pairs(args.env, "--env"), _pairs(args.header, "--header")
    entry: dict[str, Any] = {"command": args.command, "args": words, "env": env, "url": args.url}
    entry |= {"headers": headers, "auth": args.auth, "needs": list(args.needs)}
    made = McpServer(args.name, McpServerSection(**{key: one for key, one in entry.items() if one}), loaded)
    made.check()
    made.opening()  # refuses an unknown need
    notes = [
        f"{name} is in config.yaml; keep it in .env and write {name}=${{{name}}}"
        for name, one in (*env.items(), *headers.items())
        if _SECRET.search(name) and "${" not in one
    ]
    swallowed = next((word for word in args.args[1:] if word.partition("=")[0] in _OPTIONS), None)
    if swallowed:
        notes.append(f"The server gets {swallowed}, because it is after --args; if it is for Hermes, write it before.")
    proposed = proposed_needs(args.command, words, env) if args.command else {}
    proposed = {need: why for need, why in proposed.items() if need not in args.needs}
    if sys.stdin.isatty():
        entry["needs"] += confirmed_needs("it", proposed)
    else:
        notes += [f"It probably needs {need} ({why}): add --needs {need}." for need, why in proposed.items()]
    saved = {key: one for key, one in entry.items() if one}
    config.set_value(("mcp_servers", args.name), saved)
    opened = ", ".join(entry["needs"]) or "nothing"
    said = [
        f"Added {args.name}." if args.url else f"Added {args.name}: confined; beyond its own folder it has {opened}."
    ]
    code = 0
    document: dict[str, Any] = {"name": args.name, "needs": entry["needs"], "state": None, "tools": []}
    if not args.no_test:
        server = _server(args.name)
        state, lists = _try(server, silent=args.json)
        document |= _facts(state, lists)
        said += _told(server, state, lists, refused=[need for need in proposed if need not in entry["needs"]])
        if state.state not in ("connected", "needs login"):
            code = 1
            said.append(f"It stays in config.yaml. hermes mcp test {args.name} tries it again; to add it with other"
                        f" settings, hermes mcp remove {args.name} --yes first.")  # fmt: skip
    return CommandAnswer(document, *said, notes=notes, code=code)


def confirmed_needs(who: str, proposed: dict[str, str]) -> list[str]:
    """Ask the owner about each proposed need, and return those that the server may have."""
    return [
        need
        for need, why in proposed.items()
        if prompts.yes_or_no(f"Let {who} have {need}? ({text.harmless(why)})", now=False, kept="no")
    ]


def _pairs(given: list[str], flag: str) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} {one[:40]!r} is not NAME=VALUE")
        found[name.strip()] = value
    return found


def _remove(args: argparse.Namespace) -> CommandAnswer:
    from hermes_agent.mcp import login
    from hermes_agent.mcp.source import tool_names
    from hermes_cli.framework import store

    server = _server(args.name)
    tokens = login.token_file(server)
    also = " and its login" if tokens.exists() else ""
    prompts.confirm(f"Forget the MCP server {args.name}{also}?", yes=args.yes)
    ended = 0
    with store.open_store(create=True) as db:  # another server may get the name
        for grant in db.approvals.grants():
            if grant.kind in ("tool", "target") and grant.value.startswith(tool_names(args.name)):
                ended += db.approvals.revoke(grant.id, reason=f"the MCP server {args.name} was removed")
    config.unset_value(f"mcp_servers.{args.name}")
    tokens.unlink(missing_ok=True)
    for kept in ("lists", "failures"):
        (server.config.home / "mcp" / kept / f"{args.name}.json").unlink(missing_ok=True)
    shutil.rmtree(server.folder, ignore_errors=True)
    too = f" {text.counted(ended, 'permission')} for its tools ended." if ended else ""
    return CommandAnswer({"removed": args.name, "permissions_ended": ended}, f"Removed {args.name}{also}.{too}")


# -- look --------------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> CommandAnswer:
    from hermes_agent.mcp import source
    from hermes_agent.mcp.servers import configured

    loaded = config.load()
    states, known = source.states(loaded), configured(loaded)
    rows, cells = [], []
    for name, one in states.items():
        server = known[name]
        rows.append({
            "name": name, "state": one.state, "since": one.since or None, "reason": one.reason, "tools": one.tools,
            "protocol": one.protocol, "reached": server.reached, "needs": list(server.settings.needs),
        })  # fmt: skip
        since, needs = text.ago(one.since) if one.since else "—", ", ".join(server.settings.needs) or "—"
        cells.append([name, one.state, since, str(one.tools), server.reached, needs, one.reason])
    return output.list_answer(rows, _SERVERS, cells, nothing="There is no MCP server; hermes mcp add adds one.")


def _test(args: argparse.Namespace) -> CommandAnswer:
    server = _server(args.name)
    state, lists = _try(server, silent=args.json)
    well = state.state == "connected"
    return CommandAnswer(_facts(state, lists), *_told(server, state, lists), code=0 if well else 1)


def _try(server: McpServer, *, silent: bool) -> tuple[ServerState, ServerLists | None]:
    """Connect once and end the connection again."""
    logs.install(level=logging.INFO)  # what the program says goes to the log
    if not silent:
        prompts.tell(f"Trying {server.name}, for {server.settings.connect_timeout:g} seconds at most …")
    return asyncio.run(_once(server))


async def _once(server: McpServer) -> tuple[ServerState, ServerLists | None]:
    from hermes_agent.mcp.connection import ServerAway, ServerConnection

    made = ServerConnection(server, on_change=lambda: None, on_lists=lambda: None)
    with suppress(ServerAway):  # the state says why
        await made.ready(patience=server.settings.connect_timeout + _END_SECONDS)
    state = made.state
    await made.close()
    return state, made.lists


def _facts(state: ServerState, lists: ServerLists | None) -> dict[str, Any]:
    tools = [one["name"] for one in lists.tools] if lists else []
    return {"state": state.state, "reason": state.reason, "protocol": state.protocol, "tools": tools}


def _told(
    server: McpServer, state: ServerState, lists: ServerLists | None, *, refused: Sequence[str] = ()
) -> list[str]:
    """The state for a person. `refused`: what the owner did not let it have just now."""
    from hermes_agent.mcp.servers import HOST, NETWORK

    name, needs = server.name, server.settings.needs
    if state.state == "needs login":
        return [f"{name}: needs login: {state.reason}. hermes mcp login {name} logs in."]
    if state.state != "connected" or lists is None:
        said = [f"{name} does not work: {state.reason.removesuffix('.')}."]
        lacks = list(refused) or [NETWORK]
        if state.state == "retrying" and server.settings.command and HOST not in needs and lacks[0] not in needs:
            wanted = shlex.quote(json.dumps([*needs, *lacks]))
            said.append(f"It does not have {', '.join(lacks)}. If it needs that:")
            said.append(f"  hermes config set mcp_servers.{name}.needs {wanted}")
        return said
    names = [str(one["name"]) for one in lists.tools]
    more = f" and {len(names) - _MOST_TOOLS} more" if len(names) > _MOST_TOOLS else ""
    left = f" ({state.reason})" if state.reason else ""
    also = [word for word, there in (("resources", lists.resources), ("prompts", lists.prompts)) if there]
    beside = f" It also has {' and '.join(also)}." if also else ""
    return [
        f"{name}: connected (protocol {state.protocol}), {text.counted(len(names), 'tool')}{left}.{beside}",
        f"  {', '.join(names[:_MOST_TOOLS])}{more}",
    ]


# -- log in ------------------------------------------------------------------------------------------------------------


def _login(args: argparse.Namespace) -> CommandAnswer:
    server = _server(args.name)
    if not server.settings.url:
        raise UsageError(f"{args.name} runs here and has no login", hint="Its keys are in its env.")
    logs.install()
    state, lists = asyncio.run(_logged_in(server, browser=not args.no_browser))
    code = 0 if state.state == "connected" else 1
    said = ["You are logged in."] if not code else []
    return CommandAnswer(_facts(state, lists), *said, *_told(server, state, lists), code=code)


async def _logged_in(server: McpServer, *, browser: bool) -> tuple[ServerState, ServerLists | None]:
    """Log in with the person's help, then connect."""
    import webbrowser

    from hermes_agent.mcp import login
    from hermes_agent.mcp.connection import ServerAway, ServerConnection

    async with login.Callback(login.stored_port(server)) as callback:

        async def show(url: str) -> None:
            callback.state = (parse_qs(urlsplit(url).query).get("state") or [""])[0]
            prompts.tell(f"Log in here:\n\n{url}\n\nThen come back. Without a browser on this machine, paste the")
            prompts.tell("address that your browser was sent to (127.0.0.1…), or the code, and press Enter.")
            if browser:
                await asyncio.to_thread(webbrowser.open, url)
            loop = asyncio.get_running_loop()
            threading.Thread(target=_paste, args=(loop, callback), daemon=True).start()

        access = login.LoginAccess(server, show=show, answer=callback.result, port=callback.port)
        made = ServerConnection(server, on_change=lambda: None, on_lists=lambda: None, access=access)
        with suppress(ServerAway):  # the state says why
            await made.ready(patience=600.0)
        state = made.state
        await made.close()
        return state, made.lists


def _paste(loop: asyncio.AbstractEventLoop, callback: Any) -> None:
    line = sys.stdin.readline()
    if line.strip():
        loop.call_soon_threadsafe(callback.take, line)


# -- Hermes as a server ------------------------------------------------------------------------------------------------


def _serve(args: argparse.Namespace) -> None:
    """Serve until the input ends. The SDK owns stdout: whatever else is printed goes to stderr."""
    from hermes_config import version

    ensure_home()
    logs.install()
    try:
        import anyio

        from gateway.mcp_server import tools
    except ModuleNotFoundError as error:
        raise UsageError("hermes mcp serve needs the extra mcp", hint=version.adding(extra="mcp")) from error
    from hermes_cli import plugins
    from hermes_cli.framework import store
    from tui_gateway.mcp_caller import LocalCaller

    plugins.discover_plugins()
    with store.open_store(create=True, says_waits=False):  # which refuses a home that is not ours to open
        caller = LocalCaller()
        try:
            anyio.run(tools.make(lambda request: caller).run_stdio_async)
        except* BrokenPipeError:
            pass  # the other agent is gone, which is how this ends; running turns are recovered
        finally:
            caller.close()
