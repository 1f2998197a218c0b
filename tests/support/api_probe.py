"""What a key of the HTTP API can do, found out by doing it: a real gateway on loopback is asked, with each key.

The gateway is a process of its own, between the fake Telegram and a scripted model that calls whatever tool a message
names. Ada is the owner and Bob a member, both on Telegram. Every answer is an effect: a status, what a command printed,
what a file says, whether a question of permission is still open. The operators' page on authorisation is made from it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import httpx2
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gateway import status
from gateway.api import auth
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, PersonId
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, call, say
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

_SECONDS = 20.0
_CALL = re.compile(r"call (\w+) (\{.*\})", re.DOTALL)
_PRINTED = "made-42"
_MCP, _TASKS = "2026-07-28", "io.modelcontextprotocol/tasks"


class Row(NamedTuple):
    """A deed, and for each of `Probe.COLUMNS` whether it was done."""

    deed: str
    done: tuple[bool, ...]


def measure() -> list[Row]:
    """The rows of the table, in order."""
    with Probe() as probe:
        return [Row(deed, tuple(bool(do(key)) for key in probe.shown)) for deed, do in probe.deeds()]


class Probe:
    COLUMNS = ("no key", "client key", "owner key")

    def __init__(self) -> None:
        model = ScriptedModel(improvise=_next_step)
        api = {"enabled": True, "port": 0, "mcp": True}
        self.scene = Scenario(FakeTelegram(flood=OFF), model, config={"api_server": api, "auto_title": False})
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            scene = stack.enter_context(self.scene)
            self.ada, self.bob = scene.owner("ada"), scene.member("bob")
            scene.start()
            scene.wait(lambda: bool(status.read_status(scene.home).api), "the API's start")
            self.url = f"http://{status.read_status(scene.home).api}"
            self.shown = ("", auth.make(scene.home), auth.make(scene.home, "owner"))
            self._stack = stack.pop_all()
        self.sessions = {person.name: self._talked(person) for person in (self.ada, self.bob)}
        scene.hermes("-z", "hello")  # at this machine's terminal
        self.sessions["owner"] = self._newest(LOCAL_OWNER)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    # -- the deeds -----------------------------------------------------------------------------------------------------

    def deeds(self) -> Iterator[tuple[str, Callable[[str], object]]]:
        yield "`GET /health`", lambda key: self._get(key, "/health").status_code == 200
        yield "ask something (`POST /v1/chat/completions`)", lambda key: self.ask(key, "hello") == "ok"
        yield "a command, `/help`", lambda key: "/new" in self.ask(key, "/help")
        yield "list, read and delete its own conversations", self._own
        yield "read the owner's conversations", lambda key: self._reads(key, self.sessions["owner"])
        yield "read another person's conversation", lambda key: self._reads(key, self.sessions["bob"])
        yield "tools: to-do list", lambda key: self._tool(key, "todo", {})
        remembered = {"action": "add", "target": "memory", "content": "likes tea"}
        yield "tools: memory, its own", lambda key: self._tool(key, "memory", remembered)
        yield "tools: terminal", lambda key: _PRINTED in self.use(key, "terminal", {"command": _command()})
        yield "tools: write and read a file", self._files
        yield "any model, `/model demo`", lambda key: "From now on" in self.ask(key, "/model demo", name="model")
        yield "answer a question of permission, `/approve`", self._approves
        yield "at `/mcp`: ask something", lambda key: self._tool_there(key, "ask", message="hello") == "ok"
        yield "there: read the owner's conversations", lambda key: self._reads_at_mcp(key, self.sessions["owner"])
        yield "there: read another person's conversation", lambda key: self._reads_at_mcp(key, self.sessions["bob"])
        yield "there: answer a question of permission of its own task", self._approves_at_mcp
        yield "`GET /metrics`, `/health/detailed`", self._figures
        yield "open `/api/ws`", self._opens
        yield "at `/api/ws`: run a command", self._commands_there
        yield "there: read every conversation", lambda key: self._reads_there(key, self.sessions["bob"])
        yield "there: answer a question of permission", self._approves_there

    # -- over HTTP -----------------------------------------------------------------------------------------------------

    def _client(self, key: str) -> httpx2.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=_SECONDS, verify=False)

    def _get(self, key: str, path: str) -> httpx2.Response:
        with self._client(key) as client:
            return client.get(path)

    def ask(self, key: str, text: str, *, name: str = "probe") -> str:
        """The answer to a message; empty when it was refused."""
        with self._client(key) as client:
            body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
            answer = client.post("/v1/chat/completions", json=body, headers={"x-hermes-session-id": name})
        return str(answer.json()["choices"][0]["message"]["content"]) if answer.status_code == 200 else ""

    def use(self, key: str, tool: str, arguments: dict[str, Any]) -> str:
        """What a tool gave that the model behind this key called."""
        return self.ask(key, f"call {tool} {json.dumps(arguments)}")

    def _tool(self, key: str, tool: str, arguments: dict[str, Any]) -> bool:
        given = self.use(key, tool, arguments)
        return bool(given) and "no tool named" not in given

    def _files(self, key: str) -> bool:
        self.use(key, "write_file", {"path": f"{auth.key_id(key)}.txt", "content": _PRINTED})
        return _PRINTED in self.use(key, "read_file", {"path": f"{auth.key_id(key)}.txt"})

    def _own(self, key: str) -> bool:
        self.ask(key, "hello", name="own")
        listed = self._get(key, "/api/sessions")
        if listed.status_code != 200:
            return False
        mine = [row["id"] for row in listed.json()["data"] if row["source"] == "api_server"]
        if not mine or not self._reads(key, mine[0]):
            return False
        with self._client(key) as client:
            return client.delete(f"/api/sessions/{mine[0]}").status_code == 200

    def _figures(self, key: str) -> bool:
        return all(self._get(key, path).status_code == 200 for path in ("/metrics", "/health/detailed"))

    def _reads(self, key: str, session_id: str) -> bool:
        return self._get(key, f"/api/sessions/{session_id}/messages").status_code == 200

    def _approves(self, key: str) -> bool:
        """Ada's call waits for permission; whoever answers here would let it run."""
        with self._question() as question:
            number = re.search(r"/approve (\S+)", self.ada.chat_text())
            for text in ("/approve", *([f"/approve {number[1]}", f"/approve {number[1]} once"] if number else ())):
                self.ask(key, text)
            return question.ran(within=1.0)

    # -- at /mcp -------------------------------------------------------------------------------------------------------

    def _mcp(self, key: str, method: str, named: str, /, **params: Any) -> dict[str, Any]:
        """The result of one request of the stateless protocol; empty when it was refused."""
        meta = {"protocolVersion": _MCP, "clientCapabilities": {"elicitation": {}, "extensions": {_TASKS: {}}}}
        about = {f"io.modelcontextprotocol/{field}": value for field, value in meta.items()}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": about}}
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": _MCP, "mcp-method": method}
        with self._client(key) as client:
            answer = client.post("/mcp", json=body, headers={**headers, "mcp-name": named})
        if answer.status_code != 200:
            return {}
        found = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        result: dict[str, Any] = json.loads(found[-1] if found else answer.text).get("result") or {}
        return result

    def _task(self, key: str, method: str, task: str, **params: Any) -> dict[str, Any]:
        return self._mcp(key, f"tasks/{method}", task, taskId=task, **params)

    def _tool_there(self, key: str, tool: str, **arguments: Any) -> str:
        """The text that a tool of the MCP server gave; empty when it was an error."""
        given = self._mcp(key, "tools/call", tool, name=tool, arguments=arguments)
        while given.get("status") == "working" and (task := given.get("taskId")):
            time.sleep(0.05)
            given = self._task(key, "get", task)
        given = given.get("result") or given
        return "" if given.get("isError") or not given.get("content") else str(given["content"][0]["text"])

    def _reads_at_mcp(self, key: str, session_id: str) -> bool:
        return bool(self._tool_there(key, "conversation_read", conversation=session_id))

    def _approves_at_mcp(self, key: str) -> bool:
        """Its own task waits for permission, which somebody on Telegram could give; it answers itself."""
        command = json.dumps({"command": f"mkdir -p old && rm -rf old && {_command()}"})
        arguments = {"message": f"call terminal {command}"}
        task = self._mcp(key, "tools/call", "ask", name="ask", arguments=arguments).get("taskId")
        if task is None:
            return False
        while (found := self._task(key, "get", task)).get("status") == "working":
            time.sleep(0.05)
        said = {"action": "accept", "content": {"answer": "once"}}
        number = str(found.get("statusMessage") or "").partition("permission: ")[2].partition(":")[0]
        done = self._task(key, "update", task, inputResponses={number: said}) if number else {}
        self._task(key, "cancel", task)
        return bool(done)

    # -- at /api/ws ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _socket(self, key: str) -> Iterator[_Rpc | None]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            opened = connect(f"{self.url.replace('http', 'ws', 1)}/api/ws", additional_headers=headers)
        except InvalidStatus:
            yield None
            return
        with opened:
            yield _Rpc(opened)

    def _opens(self, key: str) -> bool:
        with self._socket(key) as rpc:
            return rpc is not None and rpc.event("gateway.ready") is not None

    def _commands_there(self, key: str) -> bool:
        with self._socket(key) as rpc:
            if rpc is None:
                return False
            session = rpc.call("session.create", close_on_disconnect=True)["session_id"]
            text = f"call terminal {json.dumps({'command': _command()})}"
            rpc.call("prompt.submit", session_id=session, text=text)
            return _PRINTED in rpc.event("message.complete", session)["text"]

    def _reads_there(self, key: str, session_id: str) -> bool:
        with self._socket(key) as rpc:
            return rpc is not None and "hello" in json.dumps(rpc.call("session.resume", session_id=session_id))

    def _approves_there(self, key: str) -> bool:
        with self._question() as question, self._socket(key) as rpc:
            if rpc is None:
                return question.ran(within=1.0)
            session = rpc.call("session.resume", session_id=self.sessions["ada"])["session_id"]
            asked = rpc.event("approval.request", session)
            rpc.call(
                "approval.respond", session_id=session, choice=asked["choices"][0], approval_id=asked["approval_id"]
            )
            return question.ran(within=_SECONDS)

    # -- the people ----------------------------------------------------------------------------------------------------

    def _talked(self, person: FakePerson) -> str:
        """The conversation of somebody on Telegram."""
        person.say("hello")
        person.expect("ok")
        with contextlib.closing(SessionDB(self.scene.home / "state.db")) as db:
            known = db.people.find(platform="telegram", native_id=str(person.id))
        assert known is not None, "who has talked is known"
        return self._newest(known.id)

    def _newest(self, person: PersonId) -> str:
        with contextlib.closing(SessionDB(self.scene.home / "state.db")) as db:
            return str(db.list_sessions_rich(owner=person, limit=1)[0]["id"])

    @contextlib.contextmanager
    def _question(self) -> Iterator[_Question]:
        """A call of Ada's that waits for permission; denied at the end if nobody has answered."""
        question = _Question(self.ada)
        yield question
        if not question.ran(within=0.0):
            self.ada.say("/stop")
            self.ada.expect("topped", after=question.after)


class _Question:
    def __init__(self, ada: FakePerson) -> None:
        self._ada = ada
        messages = ada.messages()
        self.after = messages[-1].id if messages else 0
        command = f"mkdir -p old && rm -rf old && {_command()}"
        ada.say(f"call terminal {json.dumps({'command': command})}")
        self._until(lambda: any(one.buttons for one in self._new()), _SECONDS, "a question")

    def _new(self) -> list[Any]:
        return [one for one in self._ada.messages() if one.id > self.after and not one.mine]

    def ran(self, *, within: float) -> bool:
        """Whether the command was run; waited for so long."""
        with contextlib.suppress(AssertionError):
            self._until(self._has_run, within, "its output")
            return True
        return False

    def _has_run(self) -> bool:
        return any(_PRINTED in one.text for one in self._new())

    @staticmethod
    def _until(seen: Callable[[], bool], within: float, what: str) -> None:
        deadline = time.monotonic() + within
        while not seen():
            assert time.monotonic() < deadline, f"there was not {what} within {within:g} s"
            time.sleep(0.02)


class _Rpc:
    """A terminal client, as small as it can be."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._frames, self._number = socket, list[dict[str, Any]](), 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        self._socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        frame = self._take(lambda one: one.get("id") == number)
        result: dict[str, Any] = frame.get("result") or {}
        return result

    def event(self, kind: str, session: str | None = None) -> dict[str, Any]:
        def fits(frame: dict[str, Any]) -> bool:
            params = frame.get("params") or {}
            return params.get("type") == kind and session in (None, params.get("session_id"))

        found: dict[str, Any] = self._take(fits)["params"].get("payload") or {}
        return found

    def _take(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while True:
            for at, frame in enumerate(self._frames):
                if fits(frame):
                    return self._frames.pop(at)
            self._frames.append(json.loads(self._socket.recv(max(0.01, deadline - time.monotonic()))))


def _command() -> str:
    """Prints what does not stand in it: whoever only repeats the command has not run it."""
    return "echo made-$((40 + 2))"


def _next_step(request: ScriptedRequest) -> Step:
    """The model: calls the tool that the last message names, then says what that gave."""
    last = request.messages[-1]
    text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
    if last["role"] == "tool":
        return say(f"It gave: {text}")
    wanted = _CALL.search(text)
    return say("ok") if wanted is None else say(calls=[call(wanted[1], json.loads(wanted[2]))])
