"""The turn as a workflow of DBOS, behind HTTP. `python dbos_turn.py DATABASE_URL MODEL_URL FOLDER PORT`.

The workflow's input is the stored message, its output the stored answer; each step's result is stored between them.
"""

from __future__ import annotations

import json
import sys

import uvicorn
from dbos import DBOS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from the_turn import Model, tool

url, model_url, folder, port = sys.argv[1:]
DBOS(config={"name": "turn", "system_database_url": url, "log_level": "WARNING"})
model = Model(model_url, folder)


@DBOS.step()
async def model_call(number: int) -> str:
    return await model.call(number)


@DBOS.step()
async def tool_step(said: str) -> str:
    return await tool(said)


@DBOS.workflow()
async def turn(conversation: str, text: str) -> str:
    await tool_step(await model_call(1))
    return str(json.loads(await model_call(2))["text"])


async def answer(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"text": await turn(body["conversation"], body["text"])})


if __name__ == "__main__":
    DBOS.launch()
    app = Starlette(routes=[Route("/turn", answer, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
