"""The connection to one MCP server: the task that keeps it, its state, its lists and its calls.

One task owns the SDK's client, from the connection to its end; calls of several turns share it. A connection that ends
is made again, with growing pauses. A server never just disappears: its last lists stay (in a file of the home, so that
the next process knows them, too), and a call says in one line that the server is away. All of this runs on the thread
of the connections; `McpTools` (`source`) brings calls there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_agent.mcp import login, results, transport
from hermes_agent.mcp.servers import ServerUnusable
from hermes_config import version
from hermes_config.errors import HermesError
from hermes_config.home import write_atomic

if TYPE_CHECKING:
    from mcp import Client

    from hermes_agent.mcp.servers import McpServer
    from hermes_agent.tools.base import ToolContext, ToolResult

log = logging.getLogger("hermes.mcp")
StateWord = Literal["connected", "retrying", "needs login", "off"]
_STARTING = "it is being connected"
LAZY = "it connects when one of its tools is called"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_AWAY_SECONDS = 5.0
"""How long a call waits for a server that is away."""
_LOOK_SECONDS = 300.0
"""How often an idle connection is tried."""
_ANSWER_SECONDS = 10.0
_LOGIN_SECONDS = 3.0
"""How often a server that needs a login looks for new tokens."""
_MOST_FIELDS = 6
_MOST_QUESTIONS = 12
"""How often a server may ask the person during one call; it may ask no more once nobody answered."""
_LOGS = ("client", "mcp.client")
"""Where the SDK logs what servers send, once for each message; what people have to know is in the state."""
_LIST_PAUSE = 1.0
"""A server that says over and over that its list changed is asked for it no more often."""


class ServerAway(HermesError):
    """The MCP server is not connected."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of a server's connection, for people."""

    state: StateWord
    reason: str = ""
    since: float = 0.0
    protocol: str = ""
    tools: int = 0


@dataclass(frozen=True, slots=True)
class ServerLists:
    """What a server said it has. `tools`: name, description, schema of each."""

    tools: tuple[Mapping[str, Any], ...] = ()
    resources: bool = False
    prompts: bool = False
    left_out: int = 0
    protocol: str = ""

    @classmethod
    def kept(cls, file: Path) -> ServerLists | None:
        """The lists of the last connection, of this process or another; None if there was none."""
        try:
            said = json.loads(file.read_text("utf-8"))
            return cls(tuple(said.pop("tools")), **said)
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return None


@dataclass(slots=True, eq=False)
class ToolCaller:
    """A call that runs: its context, and the loop on which its person can be asked."""

    ctx: ToolContext
    loop: asyncio.AbstractEventLoop
    limit: asyncio.Timeout | None = None
    questions: int = _MOST_QUESTIONS
    """How many more the server may ask."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


_calling: ContextVar[ToolCaller | None] = ContextVar("mcp_call", default=None)


class ServerConnection:
    """One server. Everything but `state` and `lists` belongs to the thread of the connections."""

    def __init__(
        self, server: McpServer, *, on_change: Callable[[], None], on_lists: Callable[[], None],
        access: login.LoginAccess | None = None,
    ) -> None:  # fmt: skip
        """`access`: the login to use, where a person can log in."""
        self.server, self._access = server, access
        self._on_change, self._on_lists = on_change, on_lists
        self._file = server.config.home / "mcp" / "lists" / f"{server.name}.json"
        self.lists = ServerLists.kept(self._file)
        self.state = ServerState("off", LAZY, time.time(), tools=len(self.lists.tools) if self.lists else 0)
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._callers: set[ToolCaller] = set()
        self._settled = asyncio.Event()
        """Set when an attempt to connect succeeded or failed."""
        self._hurry = asyncio.Event()
        """Set to try again at once."""
        self._wake = asyncio.Event()
        """Set when the connection has to be looked at: a list changed, or it may be broken."""
        self._listed = 0.0
        self._relist: asyncio.TimerHandle | None = None
        self._broken = self._doubted = self._served = self._closing = False
        self._unheard = self.lists is None

    # -- the task ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._keep())

    @property
    def is_unheard(self) -> bool:
        """Whether its tools are not known yet, and nobody knows whether they will be."""
        return self._unheard and not self._settled.is_set()

    def cancel(self) -> None:
        """End the connection soon."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=5.0)

    async def _keep(self) -> None:
        """Connect, and connect again, until this task is cancelled or the settings turn out to be unusable."""
        tries = 0
        self._say("retrying", _STARTING)
        while True:
            self._hurry.clear()
            began = time.monotonic()
            try:
                await asyncio.to_thread(_import_sdk)
                self.server.check()
                why = await self._connect()
            except ServerUnusable as error:
                self._say("off", error.one_line())
                self._settled.set()
                return
            except login.LoginNeeded as error:
                self._say("needs login", str(error))
                await self._until_login()
                continue
            except Exception as error:  # noqa: BLE001 - boundary: a server, its program, the SDK
                why = error.one_line() if isinstance(error, HermesError) else transport.reason_of(error)
            finally:
                self._client = None
            # At the end of the process there are no threads any more, which looks like a failure.
            if self._closing or why.startswith("cannot schedule new futures"):
                return
            tries = 1 if self._served or time.monotonic() - began > _LONGEST_PAUSE else tries + 1
            if (self.state.state, self.state.reason) != ("retrying", why):
                log.warning("%s: %s", self.server.name, why, extra={"action": "mcp_lost", "server": self.server.name})
                failure = {"why": why, "at": time.time(), "mark": self.server.mark}
                await asyncio.to_thread(keep_json, _failure_file(self.server), failure)
            self._say("retrying", why)
            self._settled.set()
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries - 1, 10)) * random.uniform(0.8, 1.2)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), pause)
            await asyncio.sleep(_FIRST_PAUSE if self._hurry.is_set() else 0)  # a call may hurry, not hammer

    async def _connect(self) -> str:
        """Connect once and stay until the connection ends; returns why it ended."""
        from mcp import Client
        from mcp_types import Implementation

        self._broken = self._doubted = self._served = False
        self._wake.clear()
        program = transport.ServerProgram(self.server, self._wake.set) if self.server.settings.command else None
        access = self._access or login.LoginAccess(self.server)
        if program is not None:
            wire = program.streams()
        else:

            def saw(response: Any) -> None:
                access.saw(response)
                if access.needed:
                    self._broken = True
                    self._wake.set()

            auth = await asyncio.to_thread(access.provider)
            made = transport.http_client(self.server, auth=auth, on_status=saw)
            wire = transport.http_streams(self.server, made)
        client = Client(
            wire, message_handler=self._notified, elicitation_callback=self._elicit, cache=None,
            client_info=Implementation(name="hermes", version=version.VERSION),
        )  # fmt: skip
        seconds = None if self._access else self.server.settings.connect_timeout  # a person takes their time
        limit = asyncio.timeout(seconds)
        try:
            async with limit, client:
                # The SDK would compare results with a schema of the server's making, for as long as a pattern in it
                # takes, and hold all servers meanwhile; the model reads results as they are.
                client.session.validate_tool_result = _accepted  # type: ignore[method-assign]
                await self._list(client)
                limit.reschedule(None)
                await asyncio.to_thread(_failure_file(self.server).unlink, missing_ok=True)
                self._client = client
                self._say("connected", self._left_out())
                self._settled.set()
                return await self._watch(client, program)
        except BaseException as error:
            if access.needed:
                raise login.LoginNeeded(access.needed) from error
            if program is not None and seconds is not None and limit.expired():
                said = f": {program.errors.last}" if program.errors.last else ""
                return f"it did not start within {seconds:g} seconds{said}"
            if program is not None and program.reason and not isinstance(error, asyncio.CancelledError):
                return program.reason
            raise

    async def _watch(self, client: Client, program: transport.ServerProgram | None) -> str:
        """Follow changed lists and notice the end of the connection; returns why it ended."""
        listening = asyncio.ensure_future(self._listen(client))
        try:
            while True:
                idle = False
                try:
                    await asyncio.wait_for(self._wake.wait(), _LOOK_SECONDS)
                except TimeoutError:
                    idle = True
                self._wake.clear()
                if program is not None and program.ended:
                    return program.reason
                if self._broken:
                    return "the connection was closed"
                doubted, self._doubted = self._doubted or idle, False
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS if doubted else 3 * _ANSWER_SECONDS):
                        await self._list(client)
                except TimeoutError:
                    return "it does not answer any more"
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, client: Client) -> None:
        """Follow changes of lists on a connection of the current protocol; the older one sends them unasked."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self._list_changed()
            self._broken = self.server.settings.url is not None  # the server closed it, perhaps to restart
        except ListenNotSupportedError:
            return
        except SubscriptionLost:
            self._broken = True
        except MCPError as error:
            log.info("%s: changes of its lists are not followed: %s", self.server.name, transport.reason_of(error))
        if self._broken:
            self._wake.set()

    async def _notified(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._list_changed()

    def _list_changed(self) -> None:
        """Look at the list again, at once or when the pause since the last time is over."""
        loop = asyncio.get_running_loop()
        if self._relist is None or self._relist.when() <= loop.time():
            self._relist = loop.call_at(max(loop.time(), self._listed + _LIST_PAUSE), self._wake.set)

    async def _list(self, client: Client) -> None:
        """Ask for the lists, and tell the others if they changed."""
        limits = self.server.config.limits
        found: list[Mapping[str, Any]] = []
        left_out, cursor = 0, None
        for _ in range(limits.mcp_tools):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                record = {"name": tool.name, "description": tool.description or tool.title or "",
                          "schema": tool.input_schema}  # fmt: skip
                if len(found) < limits.mcp_tools:
                    found.append(results.plain_record(record, limits))
                else:
                    left_out += 1
            cursor = page.next_cursor
            if cursor is None or left_out:
                break
        able = client.server_capabilities
        resources = able.resources is not None and bool(
            (await client.list_resources()).resources or (await client.list_resource_templates()).resource_templates
        )
        prompts = able.prompts is not None and bool((await client.list_prompts()).prompts)
        self._listed = asyncio.get_running_loop().time()
        lists = ServerLists(tuple(found), resources, prompts, left_out, client.protocol_version)
        if lists != self.lists:
            self.lists = lists
            await asyncio.to_thread(keep_json, self._file, asdict(lists))
            self._on_lists()
            self._unheard = False
            if self.state.state == "connected":
                self._say("connected", self._left_out())

    def _left_out(self) -> str:
        left = self.lists.left_out if self.lists else 0
        return f"{left:,}{'' if left < self.server.config.limits.mcp_tools else '+'} tools are left out" if left else ""

    async def _until_login(self) -> None:
        """Wait for new tokens, or for somebody who asks to try again."""
        file = login.token_file(self.server)
        before = login.stamp(file)
        self._settled.set()
        while not self._hurry.is_set() and await asyncio.to_thread(login.stamp, file) == before:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), _LOGIN_SECONDS)

    def _say(self, state: StateWord, reason: str = "") -> None:
        """Set the state; `since` changes with the word only."""
        since = self.state.since if self.state.state == state else time.time()
        lists = self.lists or ServerLists()
        before, self.state = self.state, ServerState(state, reason, since, lists.protocol, len(lists.tools))
        if self.state != before:
            self._on_change()

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def ready(self, patience: float | None = None) -> Client:
        """The connected client. Starts the connection if nobody did; raises `ServerAway` if there is none soon."""
        if self._task is None or self._task.done():
            self.start()
        patience = _AWAY_SECONDS if patience is None else patience
        first = self.state.reason in (LAZY, _STARTING)
        deadline = time.monotonic() + (max(patience, self.server.settings.connect_timeout) if first else patience)
        while self._client is None:
            self._hurry.set()
            self._settled.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._settled.wait()
            except TimeoutError:
                break
            if first or self.state.state in ("needs login", "off"):
                break
        if self._client is None:
            raise ServerAway(away(self.server.name, self.state))
        return self._client

    async def run(self, work: Callable[[Client], Awaitable[ToolResult]], caller: ToolCaller) -> ToolResult:
        """Run one request of a call. An error of the server is an error of the call alone."""
        client = await self.ready()
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED
        from pydantic import ValidationError

        _calling.set(caller)
        try:
            async with asyncio.timeout(self.server.settings.timeout) as caller.limit:
                self._callers.add(caller)
                made = await work(client)
            self._served = True
            return made
        except TimeoutError:
            self._doubt()
            raise ServerAway(f"the MCP server {self.server.name} did not answer in time") from None
        except asyncio.CancelledError:
            self._doubt()
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                if self._client is client:  # the next call waits for another connection
                    self._client, self._broken = None, True
                    self._wake.set()
                raise ServerAway(
                    f"the connection to the MCP server {self.server.name} ended during the call; it may have had an"
                    " effect already, so look before you repeat it"
                ) from error
            self._doubt()  # it may have forgotten the session
            return results.of_error(self.server.name, error)
        except (RuntimeError, ValidationError) as error:  # an answer that is not what the protocol or its schema says
            return results.of_error(self.server.name, error)
        finally:
            self._callers.discard(caller)

    def _doubt(self) -> None:
        """A call was not answered: find out whether the server still works."""
        self._doubted = True
        self._wake.set()

    # -- questions of a server to the person ---------------------------------------------------------------------------

    async def _elicit(self, context: Any, params: Any) -> Any:
        """Pass a server's question on to the person of the call; what is not a simple form is declined."""
        from mcp_types import ElicitRequestFormParams, ElicitResult

        caller = _calling.get() or (next(iter(self._callers)) if len(self._callers) == 1 else None)
        if caller is None or caller.ctx.ask is None or not isinstance(params, ElicitRequestFormParams):
            return ElicitResult(action="decline")
        fields = params.requested_schema.get("properties") or {}
        if not results.is_simple_form(fields, most=_MOST_FIELDS):
            return ElicitResult(action="decline")
        content: dict[str, Any] = {}
        async with caller.asking:
            for name, rule in (fields or {"": {"type": "boolean"}}).items():
                if caller.questions <= 0:
                    return ElicitResult(action="decline")
                caller.questions -= 1
                question, choices = results.question(self.server.name, params.message, name, rule)
                asking = asyncio.run_coroutine_threadsafe(_ask(caller.ctx, question, choices), caller.loop)
                with _paused(caller.limit):
                    answer = await asyncio.wrap_future(asking)
                if answer is None:
                    caller.questions = 0
                    return ElicitResult(action="cancel")
                value = results.answer(rule, answer)
                if value is None or (not fields and value is False):
                    return ElicitResult(action="decline")
                if name:
                    content[name] = value
        return ElicitResult(action="accept", content=content)


async def _accepted(name: str, result: Any) -> None:
    """Take a result as it is."""


async def _ask(ctx: ToolContext, question: str, choices: tuple[str, ...]) -> str | None:
    if ctx.ask is None:
        return None
    with ctx.person_wait:
        return await ctx.ask(question, choices)


@contextmanager
def _paused(limit: asyncio.Timeout | None) -> Iterator[None]:
    """Stop a call's clock while a person is asked; it goes on afterwards if the call still runs."""
    now, until = asyncio.get_running_loop().time, limit.when() if limit is not None else None
    if limit is None or until is None:
        yield
        return
    left = until - now()
    limit.reschedule(None)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # the call has ended
            limit.reschedule(now() + left)


def away(name: str, state: ServerState) -> str:
    """One line for the model and for people: the server is away, and why."""
    why = f" ({state.state}{f': {state.reason}' if state.reason else ''})"
    to_do = "puts the right key in .env" if state.reason == login.KEY_REFUSED else f"runs: hermes mcp login {name}"
    advice = {"needs login": f" The owner {to_do}.", "off": ""}.get(
        state.state, " It is tried again by itself; go on without it, or try later."
    )
    return f"the MCP server {name} is away{why}.{advice}"


def _failure_file(server: McpServer) -> Path:
    """Why it did not connect, for people who look when no process uses it."""
    return server.config.home / "mcp" / "failures" / f"{server.name}.json"


def keep_json(file: Path, value: Any) -> None:
    """Keep what other processes and later ones like to know; nothing depends on it."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(file, json.dumps(value))
    except (OSError, HermesError) as error:
        log.warning("cannot write %s: %s", file.name, type(error).__name__)


def last_failure(server: McpServer) -> tuple[str, float]:
    """Why it did not connect the last time, and when that was; nothing if it did, or if nobody tried with these
    settings."""
    try:
        said = json.loads(_failure_file(server).read_text("utf-8"))
        return (str(said["why"]), float(said["at"])) if said["mark"] == server.mark else ("", 0.0)
    except (OSError, ValueError, TypeError, KeyError):
        return "", 0.0


def _import_sdk() -> None:
    """Import the SDK in a thread: it takes most of a second."""
    try:
        import mcp
        import mcp.client.streamable_http
        import mcp.client.subscriptions  # noqa: F401
    except ImportError as error:
        raise ServerUnusable("the MCP SDK is not installed", hint=version.adding(extra="mcp")) from error
    for name in _LOGS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
