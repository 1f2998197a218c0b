"""What the turn consists of on either engine: two model calls with a tool step between them.

The requests are those that Hermes sent, byte by byte, so the model has the same work whoever asks it.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx2

HEADERS = {"authorization": "Bearer scripted-key", "content-type": "application/json"}


class Model:
    def __init__(self, address: str, folder: str) -> None:
        self._url = f"{address}/v1/chat/completions"
        self._bodies = [(Path(folder) / f"{number}.json").read_bytes() for number in (1, 2)]
        self._client = httpx2.AsyncClient(trust_env=False, limits=httpx2.Limits(max_connections=256), timeout=60)

    async def call(self, number: int) -> str:
        """The model's words and calls, as they are stored."""
        answer = await self._client.post(self._url, content=self._bodies[number - 1], headers=HEADERS)
        answer.raise_for_status()
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
        return json.dumps({"text": "".join(delta.get("content") or "" for delta in deltas), "calls": calls})


async def tool(said: str) -> str:
    """The to-do list of the call: as in Hermes, what is stored of it is its result."""
    pieces = [call["function"].get("arguments", "") for call in json.loads(said)["calls"]]
    return json.dumps({"todos": json.loads("".join(pieces))["todos"]})
