"""`hermes mcp`: the MCP servers whose tools the model may use, and Hermes as one for other agents on this machine."""

from __future__ import annotations

import argparse

from hermes_cli.framework.parser import Parser, Verbs
from hermes_cli.operate import mcp_servers
from hermes_config.errors import UsageError

_ABOUT = "offer your conversations to another agent over stdin and stdout (MCP)"


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    mcp_servers.add_verbs(verbs)
    verbs.add("serve", _serve, _ABOUT, "", "$ claude mcp add hermes -- hermes mcp serve")


def _serve(args: argparse.Namespace) -> None:
    """Serve until the input ends. The SDK owns stdout: whatever else is printed goes to stderr."""
    from hermes_config import logs, version
    from hermes_config.home import ensure_home

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
