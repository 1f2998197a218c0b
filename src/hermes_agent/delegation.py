"""Delegated work: the child conversations of a turn, and how a process runs them.

`Delegation` is what the tool `delegate_task` works with: it creates the children of one call and waits for them; their
rows, and how results get back, are in `hermes_state.turns.children`. `run_call` runs the children of a call in this
process, a limited number at a time, while other turns go on; it serves the call that waits, and children whose process
died. A child is an agent of its own on a conversation of its own. It claims its inbox row like any turn, so no other
process can run it, too; a child that another process runs is only watched. Its questions for permission go to the
person and chat of its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import context, hooks, process_identity
from hermes_agent.agent import AIAgent, ConversationBusy
from hermes_agent.models import providers
from hermes_agent.turn import control
from hermes_agent.turn.request import TurnRequest
from hermes_config.errors import HermesError
from hermes_state.conversations.sessions import chosen_mark
from hermes_state.errors import NotQueued, StateError, TooManyChildren
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.turns import jobs
from hermes_state.turns.children import Child, NewChild
from hermes_state.turns.inbox import LOCAL, Address, local_route

if TYPE_CHECKING:
    from hermes_agent.approvals.types import Approver
    from hermes_agent.models.base import Endpoint
    from hermes_agent.tools.base import Tool
    from hermes_agent.turn.state import TurnRun
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.turns.turns import Work

_log = logging.getLogger("hermes.agent")
_NOT_FOR_CHILDREN = frozenset({"memory", "clarify", "cronjob", "send_file"})
"""Tools and toolsets that speak to the person, or change what outlives the task."""
_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 2.0
_LEAVE_SECONDS = 2.0
_NO_CHAT = "api_server"
STOPPED = "stopped with its parent"
_TEXT = """\
Another conversation of the same person gave you one task. Do it completely, then report back in full: what you did,
what you found (facts, figures, paths, links) and what you could not do. Your last message is the whole result; nobody
else reads you. Nobody answers questions: decide yourself, and say what you assumed."""

MakeAgent = Callable[[Child], AIAgent]


class CannotDelegate(HermesError):
    """The work cannot be delegated as asked."""


# -- running children ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """A child that this process runs."""

    parent_id: ConversationId
    agent: AIAgent
    task: asyncio.Task[None]


_runs: dict[ConversationId, _Run] = {}
_making: dict[ConversationId, ConversationId] = {}
"""The parent of each child whose agent is being made."""
_calls: dict[tuple[TurnId, str], asyncio.Task[None]] = {}


def run_call(db: SessionDB, turn_id: TurnId, call_id: str, *, make: MakeAgent, at_once: int) -> asyncio.Task[None]:
    """A task that runs the children of a call until all of them have ended, here or elsewhere."""
    key = (turn_id, call_id)
    if (task := _calls.get(key)) is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
        task = _calls[key] = asyncio.ensure_future(_run_call(db, turn_id, call_id, make, at_once))
        task.add_done_callback(lambda done: _calls.pop(key, None) if _calls.get(key) is done else None)
    return task


async def _run_call(db: SessionDB, turn_id: TurnId, call_id: str, make: MakeAgent, at_once: int) -> None:
    tried: dict[ConversationId, float] = {}
    children: list[Child] = []
    while True:
        try:
            children = [one for one in await asyncio.to_thread(db.children.of_call, turn_id, call_id) if one.is_open]
            if not children:
                return
            for child in children:
                busy = sum(run.parent_id == child.parent_id for run in list(_runs.values()))
                busy += list(_making.values()).count(child.parent_id)
                rests = tried.get(child.id, 0.0) + _AGAIN_SECONDS > time.monotonic()
                if child.id in _runs or busy >= at_once or rests:
                    continue
                if not await asyncio.to_thread(process_identity.at_work, db, child.id):
                    tried[child.id] = time.monotonic()
                    await _start(db, child, make)
        except StateError as error:  # the store is busy; the next look follows
            _log.warning("children wait for the store: %s", error.one_line(), extra={"action": "delegation"})
        if here := [run.task for run in _runs_of(children)]:
            await asyncio.wait(here, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(_LOOK_SECONDS)


def _runs_of(children: Iterable[Child]) -> list[_Run]:
    """Those of the children that this event loop runs; a process may have a second one."""
    loop = asyncio.get_running_loop()
    found = (_runs.get(child.id) for child in children)
    return [run for run in found if run is not None and run.task.get_loop() is loop]


async def _start(db: SessionDB, child: Child, make: MakeAgent) -> None:
    _making[child.id] = child.parent_id
    try:
        agent = await asyncio.to_thread(make, child)
    except Exception as error:  # noqa: BLE001 - boundary: a child that cannot begin must not hold up the others
        await asyncio.to_thread(db.children.fail, child, _words(error))
        return
    finally:
        _making.pop(child.id, None)
    task = asyncio.ensure_future(_run_child(db, child, agent))
    _runs[child.id] = _Run(child.parent_id, agent, task)
    task.add_done_callback(lambda _: _runs.pop(child.id, None))


async def _run_child(db: SessionDB, child: Child, agent: AIAgent) -> None:
    """Run a child's turn to its end, or go on with the turn that a lost process left."""
    facts = {
        "parent_session_id": child.spec.get("parent"), "parent_turn_id": child.turn_id, "child_session_id": child.id,
        "child_role": child.spec.get("role"), "child_goal": child.goal, "child_subagent_id": child.id,
    }  # fmt: skip
    since, told = time.monotonic(), list[asyncio.Future[Any]]()

    def began(work: Work) -> None:  # not before: another process may be faster
        agent.tell("event_callback", "subagent.start", child)
        if work.turn.attempt == 1:
            told.append(asyncio.ensure_future(hooks.fire("subagent_start", **facts)))

    request = TurnRequest(
        route=None, claim=(child.inbox_id,), lane=local_route(child.id), make_reply=lambda work, ending: None,
        began=began, person_id=_person(child), identity=lambda work: _identity(child),
    )  # fmt: skip
    try:
        if child.state == "running":
            if await agent.resume_unfinished(request=request) is None:  # given up, or another process has it
                await asyncio.to_thread(db.children.fail, child, "its turn is gone")
        else:
            row = await asyncio.to_thread(db.inbox.get, child.inbox_id)
            text = child.goal if row is None else str((row.payload or {}).get("text") or child.goal)
            await agent.arun_conversation(text, request=request)
    except (NotQueued, ConversationBusy):
        return  # another process was faster
    except StateError as error:
        _log.warning("a child waits for the store: %s", error.one_line(), extra={"action": "delegation"})
        return
    except Exception as error:  # noqa: BLE001 - boundary: a child that cannot begin must not hold up its parent
        await asyncio.to_thread(db.children.fail, child, _words(error))
    finally:
        agent.release()
    ended = await asyncio.to_thread(db.children.get, child.id)
    if ended is not None and not ended.is_open:
        agent.tell("event_callback", "subagent.complete", ended)
        took = round((time.monotonic() - since) * 1000)
        await asyncio.gather(*told)
        await hooks.fire(
            "subagent_stop", **facts, child_summary=ended.result, child_status=ended.state, duration_ms=took
        )


def _words(error: Exception) -> str:
    if isinstance(error, HermesError):
        return error.one_line()
    _log.error("a child failed because of a defect in Hermes", exc_info=error, extra={"action": "delegation"})
    return f"something went wrong inside Hermes ({type(error).__name__})"


def _person(child: Child) -> PersonId | None:
    found = child.spec.get("person_id")
    return None if found is None else PersonId(found)


def _identity(child: Child) -> context.TurnIdentity:
    """The parent's chat: questions are asked there, and tools see it."""
    address, platform = child.address, str(child.spec.get("platform") or "")
    source = {} if address is None or address.source is None else address.source
    return context.TurnIdentity(
        platform=platform, source=platform, chat_id=str(source.get("chat_id") or ""),
        thread_id=str(source.get("thread_id") or ""),
        user_id=str(source.get("user_id") or child.spec.get("person_id") or ""),
        session_key="" if address is None or address.platform == LOCAL else address.route,
    )  # fmt: skip


def child_agent(
    db: SessionDB,
    config: Config,
    child: Child,
    *,
    approver: Approver | None,
    yolo: bool = False,
    endpoint: Endpoint | None = None,
) -> AIAgent:
    """The agent of a child, as its parent's turn wanted it. Raises our errors.

    `endpoint`: the parent's, for a child without a model of its own.
    """
    spec = child.spec
    agent = AIAgent(
        spec.get("model"), spec.get("provider"), endpoint=None if spec.get("model_config") else endpoint,
        session_db=db, session_id=child.id, config=config,
        platform=str(spec.get("platform") or "cli"), person_id=_person(child), role=spec.get("role"),
        workdir=Path(spec["workdir"]), approver=approver, yolo=yolo, budget_usd=child.budget_usd,
        enabled_toolsets=tuple(spec.get("tools") or ()), ephemeral_system_prompt=_TEXT, skip_memory=True,
        skip_context_files=not spec.get("context_files"), child=child,
    )  # fmt: skip
    agent.makes_titles = False
    return agent


async def recover(
    db: SessionDB, config: Config, *, approver: Approver | None, parent: ConversationId | None = None
) -> None:
    """Run children that nobody works on any more, and return results that no call took.

    `parent`: of this conversation alone. Work that the person stopped stays stopped. A child goes on on the machine
    where its folder is.
    """
    for child in await asyncio.to_thread(_abandoned, db, parent):
        run_call(
            db, child.turn_id, child.call_id, at_once=config.delegation.max_concurrent_children,
            make=lambda one: child_agent(db, config, one, approver=None if _is_local(one, parent) else approver),
        )  # fmt: skip


def _is_local(child: Child, parent: ConversationId | None) -> bool:
    """Whether nobody can be asked: a terminal's child that a gateway continues."""
    return parent is None and (child.address is None or child.address.platform == LOCAL)


def _abandoned(db: SessionDB, parent: ConversationId | None) -> list[Child]:
    """One open child of each call that no living process works on."""
    found: dict[tuple[TurnId, str], Child] = {}
    calls = set(_calls)
    for child in db.children.open():
        if (parent is not None and child.parent_id != parent) or (child.turn_id, child.call_id) in calls:
            continue
        if not child.is_open or child.spec.get("machine") != process_identity.machine():
            continue
        turn = db.turns.get(child.turn_id)
        if turn is not None and turn.state == "cancelled" and child.returned is None:
            db.children.stop(child, reason=STOPPED)
        if not any(process_identity.at_work(db, one) for one in (child.id, child.parent_id)):
            found.setdefault((child.turn_id, child.call_id), child)
    db.children.settle()
    return list(found.values())


async def leave_open() -> None:
    """Leave all children of this process to the next one, because this one ends."""
    loop = asyncio.get_running_loop()
    for call in [one for one in _calls.values() if one.get_loop() is loop]:
        call.cancel()
    await _leave_open([run for run in list(_runs.values()) if run.task.get_loop() is loop], _LEAVE_SECONDS)


async def _leave_open(runs: Sequence[_Run], seconds: float) -> None:
    for run in runs:
        run.agent.abandon()
        run.task.cancel()
    if runs:
        await asyncio.wait([run.task for run in runs], timeout=seconds)


# -- one call of the tool ----------------------------------------------------------------------------------------------


class Delegation:
    """One call of `delegate_task`."""

    def __init__(self, turn: TurnRun, mark: str) -> None:
        self._turn, self._mark = turn, mark
        self._setup, self._db = turn.setup, turn.setup.db
        self._address: Address | None = None

    async def begin(self, tasks: Sequence[Mapping[str, Any]]) -> tuple[Child, ...]:
        """Create the children, or find those that this call created before a crash. Raises our errors."""
        setup, journal = self._setup, self._turn.journal
        settings = setup.config.delegation
        setup.config.require("delegation")
        depth = 0 if setup.child is None else setup.child.depth
        if depth >= settings.max_depth:
            raise CannotDelegate("children cannot delegate here", hint="Do it yourself.")
        if len(tasks) > settings.max_children:
            raise CannotDelegate(f"at most {settings.max_children} tasks in one call", hint="Use several calls.")
        self._address = await asyncio.to_thread(self._parent_address)
        wanted = [self._new(task, count=len(tasks), delegates=depth + 1 < settings.max_depth) for task in tasks]
        try:
            return await asyncio.to_thread(
                self._db.children.create, wanted, parent=journal.session_id, conversation_id=journal.conversation_id,
                turn_id=journal.turn_id, call_id=self._mark, fence=journal.fence, source=setup.platform,
                person_id=setup.person_id, most=settings.max_children,
            )  # fmt: skip
        except TooManyChildren as error:
            raise CannotDelegate(error.what, hint=error.hint) from error

    def _parent_address(self) -> Address | None:
        """Where later results go; None: the call waits as long as its children work."""
        setup, turn = self._setup, self._turn.journal.work.turn
        if setup.child is not None or setup.platform == _NO_CHAT or jobs.is_lane(turn.route):
            return None
        if turn.route is not None:
            return self._db.inbox.address(turn.id, route=turn.route)
        return Address.local(turn.conversation_id, setup.person_id)

    def _new(self, task: Mapping[str, Any], *, count: int, delegates: bool) -> NewChild:
        setup, model = self._setup, str(task.get("model") or "").strip()
        provider: str | None = None
        if model:
            provider = providers.primary(setup.config, model=model).provider
        tools = self._tools(task.get("toolsets"), delegates=delegates)
        spec = {
            "model": model or setup.endpoint.model, "provider": provider or setup.endpoint.provider,
            "tools": [tool.name for tool in tools], "workdir": str(setup.workdir), "platform": setup.platform,
            "person_id": setup.person_id, "role": setup.role, "context_files": setup.with_context_files,
            "count": count, "machine": process_identity.machine(), "parent": self._turn.journal.session_id,
            "address": None if self._address is None else self._address.to_dict(),
            "model_config": chosen_mark(model, provider) if model else {},
            "parent_usd": setup.budget.conversation_usd,
        }  # fmt: skip
        goal, about = str(task["goal"]).strip(), str(task.get("context") or "").strip()
        text = f"{goal}\n\nContext:\n{about}" if about else goal
        return NewChild(goal=goal, text=text, spec=spec, budget_usd=setup.config.delegation.budget_usd)

    def _tools(self, wanted: Sequence[str] | None, *, delegates: bool) -> list[Tool]:
        """The parent's tools, those for people left out; of these, only the wanted toolsets."""
        blocked = _NOT_FOR_CHILDREN if delegates else _NOT_FOR_CHILDREN | {"delegation"}
        tools = [tool for tool in self._turn.tools.values() if blocked.isdisjoint((tool.name, tool.toolset))]
        if wanted is None:
            return tools
        known = {name for tool in tools for name in (tool.name, tool.toolset)}
        if unknown := [name for name in wanted if name not in known]:
            there = ", ".join(sorted({tool.toolset for tool in tools}))
            raise CannotDelegate(f"there is no toolset {unknown[0][:40]!r} for a child", hint=f"There are: {there}.")
        return [tool for tool in tools if not {tool.name, tool.toolset}.isdisjoint(wanted)]

    async def wait(self) -> tuple[tuple[Child, ...], bool]:
        """Run the children and wait. Returns them, and whether some were left at work."""
        settings, stop, journal = self._setup.config.delegation, self._turn.stop, self._turn.journal
        seconds = None if self._address is None else settings.wait_seconds
        call = run_call(
            self._db, journal.turn_id, self._mark, make=self._agent, at_once=settings.max_concurrent_children
        )
        stopped = asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait({call, stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            left = not done or (stopped in done and self._is_interrupted_by_message())
            if stopped in done and not left:
                await self._stop(call)
            elif call in done:
                call.result()  # a defect ends the call; the results come later
        except asyncio.CancelledError:
            await asyncio.shield(self._cancelled(call))
            raise
        finally:
            stopped.cancel()
        children = await asyncio.to_thread(self._children)
        return children, left and any(child.is_open for child in children)

    def _is_interrupted_by_message(self) -> bool:
        """Whether the person wrote something else instead of stopping: then the children go on by themselves."""
        signals = self._turn.signals
        return signals.message is not None and signals.reason == control.BY_PERSON and self._address is not None

    def _agent(self, child: Child) -> AIAgent:
        setup, parent = self._setup, self._turn.agent
        agent = child_agent(
            self._db, setup.config, child, approver=setup.approver, yolo=setup.yolo.on, endpoint=setup.endpoint
        )

        def told(kind: str, one: Child) -> None:
            parent.tell("tool_progress_callback", kind, "delegate_task", one.goal, None, child=one)

        def tool(event: str, name: str, preview: str, args: Any, **more: Any) -> None:
            if event == "tool.started":
                parent.tell("tool_progress_callback", "subagent.tool", name, preview, None, child=child)

        def heard(*_: Any) -> None:
            parent.heard_at = time.monotonic()

        agent.event_callback = told
        agent.tool_progress_callback, agent.stream_delta_callback, agent.reasoning_callback = tool, heard, heard
        return agent

    def _children(self) -> tuple[Child, ...]:
        return self._db.children.of_call(self._turn.journal.turn_id, self._mark)

    async def _stop(self, call: asyncio.Task[None]) -> None:
        """The person stopped the parent: stop its children, also those that have not begun."""
        for child in await asyncio.to_thread(self._children):
            if child.is_open:
                await asyncio.to_thread(self._db.children.stop, child, reason=STOPPED)
            if (run := _runs.get(child.id)) is not None:
                run.agent.interrupt(reason=STOPPED)
        await asyncio.wait({call}, timeout=self._db.limits.tool_stop_ms / 2000)

    async def _cancelled(self, call: asyncio.Task[None]) -> None:
        """The parent's turn was cut off: its children go with it, to the next process or to their end."""
        call.cancel()
        with contextlib.suppress(StateError):
            found = await asyncio.to_thread(self._children)
            runs = _runs_of(found)
            if self._turn.signals.abandoned:
                await _leave_open(runs, self._db.limits.tool_stop_ms / 2000)
                return
            for child in found:
                if child.is_open:
                    await asyncio.to_thread(self._db.children.stop, child, reason=STOPPED)
            for run in runs:
                run.task.cancel()
