"""A whole gateway with its API on a port of this machine, for tests that come in by HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import yaml
from tests.support.gateways import settings

from gateway import run
from gateway.api import server
from gateway.config import Platform, load_gateway_config
from gateway.platforms.base import BasePlatformAdapter
from gateway.services import services_of
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel

KEY = "hk-0123456789abcdef0123456789abcdef"
OWNER_KEY = "hk-owner-0123456789abcdef0123456789"


class Door:
    """`async with Door(db, home, model) as door: await door.ask(…)`. Leaving ends the gateway as SIGTERM does.

    `key=OWNER_KEY`: the client holds the owner key, not the client key.
    """

    def __init__(self, db: SessionDB, home: Path, model: ScriptedModel | None = None, /, **config: Any) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._patience = config.pop("patience", 5.0)
        self.key: str = config.pop("key", KEY)
        self._others: tuple[BasePlatformAdapter, ...] = config.pop("adapters", ())
        api = {"enabled": True, "port": 0, **config.pop("api_server", {})}
        written = {**settings(model, api_server=api), "platforms": {}}
        for section, chosen in config.items():
            written[section] = {**(written.get(section) or {}), **chosen}
        (home / "config.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
        (home / ".env").write_text(f"API_SERVER_KEY={KEY}\nAPI_SERVER_OWNER_KEY={OWNER_KEY}\n", encoding="utf-8")
        self.db, self.home = db, home

    async def __aenter__(self) -> Self:
        config = configuration.load(self.home)
        services = services_of(config, load_gateway_config(config), self.db)
        api = server.make(config, services.settings, self.db)
        assert api is not None
        self.api = api
        others = {adapter.platform: adapter for adapter in self._others}
        self.runner = run.GatewayRunner(services, {**others, Platform.API_SERVER: api.adapter})
        api.connect(self.runner.parts)
        await self.runner.start()
        await self.runner.parts.connections.settled(self._patience)
        self.client = httpx2.AsyncClient(
            base_url=self.url, headers={"authorization": f"Bearer {self.key}"}, timeout=20, verify=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()
        await self.runner.stop()

    @property
    def url(self) -> str:
        return f"http://{self.api.address}"

    # -- asking ----------------------------------------------------------------------------------------------

    async def ask(
        self, *said: str, name: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        """Chat: user and assistant take turns, the user has the last word."""
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
        if system := more.pop("system", None):
            messages.insert(0, {"role": "system", "content": system})
        given = {**({} if name is None else {"x-hermes-session-id": name}), **(headers or {})}
        body = {"model": "any", "messages": messages, **more}
        return await self.client.post("/v1/chat/completions", json=body, headers=given)

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()


def said(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def events(content: str) -> list[tuple[str, Any]]:
    """Server-sent events as (name, data)."""
    found: list[tuple[str, Any]] = []
    for block in content.split("\n\n"):
        name, data = "", ""
        for line in block.splitlines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
        if data:
            found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


async def until(seen: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Look again and again until it is true."""
    async with asyncio.timeout(seconds):
        while not seen():  # noqa: ASYNC110 - what is looked at is rows, which ring no bell
            await asyncio.sleep(0.01)
