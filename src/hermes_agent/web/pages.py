"""Pages as readable text: fetched, read in a confined child process, and kept for their conversation.

A page that was read is kept in the folder of the conversation's results, so the rest of it, or the page again, needs no
request. The folder's limits hold (`limits.results_bytes`, `results_days`), and it is deleted with the conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.prompt import injection_scan
from hermes_agent.tools import output
from hermes_agent.web.addresses import WebPolicy, parse
from hermes_agent.web.client import FetchFailed, WebClient, WebRequest, WebResponse
from hermes_config import home, redaction, version
from hermes_state.turns.events import WEB_REQUEST

if TYPE_CHECKING:
    from hermes_agent.tools.base import ToolContext

_WORKER = Path(__file__).with_name("page_worker.py")
_KINDS = {"text/html": "html", "application/xhtml+xml": "html", "application/pdf": "pdf", "application/json": "json"}
_SNIFFED = ("", "application/octet-stream", "binary/octet-stream", "application/x-download")
_MOST_CHARS = 4_000_000
_OUTPUT_BYTES = 6 * _MOST_CHARS + 10_000  # each character may be written as \uXXXX


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    url: str
    """After redirects."""
    title: str
    text: str
    media_type: str
    cut: bool
    """Whether the page was longer than its limit, so that its end is missing."""
    fetched_at: float
    again: bool = False
    """Whether it was read before in this conversation, and comes from there."""


def web_client(ctx: ToolContext, policy: WebPolicy | None = None, **options: Any) -> WebClient:
    """A client whose requests appear in the turn's receipt."""

    async def done(request: WebRequest) -> None:
        shown = {**asdict(request), "url": redaction.current()(request.url)[:500], "error": request.error[:200]}
        await asyncio.to_thread(
            ctx.db.events.append, ctx.conversation_id, WEB_REQUEST, detail=shown, turn_id=ctx.turn_id
        )  # fmt: skip

    return WebClient(ctx.db.limits, policy or WebPolicy.of(ctx.config), done=done, **options)


async def read_page(address: str, ctx: ToolContext, *, refresh: bool = False) -> WebPage:
    """The page at an address, from the conversation's store if it has been read before. Raises `HermesError`."""
    key = parse(address).text
    file = await asyncio.to_thread(partial(output.new_file, tool_name="web", ctx=ctx, key=key))
    if not refresh and (kept := await asyncio.to_thread(_kept, file)) is not None:
        return kept
    response = await web_client(ctx, takes=lambda kind: kind in _SNIFFED or _kind(kind) != "").get(address)
    if response.status >= 400:
        raise FetchFailed(f"{response.url} answers with status {response.status}")
    page = await _read(response, ctx)
    await asyncio.to_thread(_keep, file, page)
    return page


def _kept(file: Path) -> WebPage | None:
    try:
        head, _, text = file.read_text("utf-8").partition("\n")
        return WebPage(**json.loads(head), text=text, again=True)
    except (OSError, ValueError, TypeError):
        return None


def _keep(file: Path, page: WebPage) -> None:
    facts = {name: value for name, value in asdict(page).items() if name not in ("text", "again")}
    home.write_atomic(file, f"{json.dumps(facts)}\n{page.text}".encode("utf-8", "replace"))


def _kind(media_type: str) -> str:
    """html, pdf, json or text; empty for what cannot be read."""
    if media_type in _KINDS:
        return _KINDS[media_type]
    if media_type.endswith("+json"):
        return "json"
    is_text = media_type.startswith("text/") or media_type.endswith(("/xml", "+xml", "javascript", "yaml"))
    return "text" if is_text and media_type != "image/svg+xml" else ""


async def _read(response: WebResponse, ctx: ToolContext) -> WebPage:
    body, kind = response.body, _kind(response.media_type)
    if body.startswith(b"%PDF-"):
        kind = "pdf"
    elif kind in ("", "text", "html", "json") and not body.startswith((b"\xff\xfe", b"\xfe\xff")):
        if output.is_binary(body) and b"\0" in body[:8_192]:
            raise FetchFailed(f"{response.url} is not text: {output.media_kind(body) or 'binary data'}")
        kind = kind or ("html" if body[:1_024].lstrip()[:1] == b"<" else "text")
    if kind == "pdf" and response.cut:
        raise FetchFailed(f"{response.url} is a PDF of more than {ctx.db.limits.web_page_bytes:,} bytes")
    found = await _worked(response, kind, ctx)
    if error := found.get("error"):
        raise FetchFailed(f"{response.url} could not be read: {output.clean(str(error))}")
    text = await asyncio.to_thread(lambda: without_orders(output.clean(str(found["text"]))))
    return WebPage(
        url=response.url, title=output.clean(str(found["title"])), text=text, cut=response.cut or bool(found["cut"]),
        media_type=response.media_type or kind, fetched_at=ctx.db.clock(),
    )  # fmt: skip


async def _worked(response: WebResponse, kind: str, ctx: ToolContext) -> dict[str, Any]:
    """Run the worker on a page, with bounds on its time, memory and output; its answer."""
    from hermes_agent.execution.base import ShellCommand
    from hermes_agent.execution.executor import Executor

    limits, seconds = ctx.db.limits, ctx.db.limits.web_parse_seconds
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", response.headers.get("content-type", ""), re.IGNORECASE)
    library = _pypdf() if kind == "pdf" else None
    async with _temporary_folder() as folder:
        file = folder / "page"
        await asyncio.to_thread(file.write_bytes, response.body)
        question = {
            "kind": kind, "file": str(file), "url": response.url, "charset": charset[1] if charset else "",
            "most": _MOST_CHARS, "memory": limits.web_parse_bytes, "seconds": seconds,
            "pypdf": str(library.parent) if library else "",
        }  # fmt: skip
        # Isolated and without site packages, so that it imports nothing but the standard library. Its text is an
        # argument, because a confined process does not see where Hermes is installed.
        command = ShellCommand((sys.executable, "-I", "-S", "-c", _worker(), json.dumps(question)), folder)
        run = Executor(ctx.home, ctx.config, limits)
        ran = await run.collect(
            command, workspace=folder, seconds=seconds + 5, most=_OUTPUT_BYTES, grace=0.5, with_errors=False, ours=True,
            reads=(library,) if library else (),
        )  # fmt: skip
    if ran.status != 0 or ran.cut:
        raise FetchFailed(f"{response.url} could not be read: it takes too much time or memory")
    answer: dict[str, Any] = await asyncio.to_thread(json.loads, ran.data)
    return answer


@asynccontextmanager
async def _temporary_folder() -> AsyncIterator[Path]:
    made = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="hermes-page-")
    try:
        yield Path(made.name)
    finally:
        await asyncio.to_thread(made.cleanup)


@cache
def _worker() -> str:
    return _WORKER.read_text("utf-8")


def _pypdf() -> Path:
    import importlib.util

    found = importlib.util.find_spec("pypdf")
    if found is None or found.origin is None:
        raise FetchFailed("a PDF cannot be read here: pypdf is not installed", hint=version.adding(extra="web"))
    return Path(found.origin).parent


def without_orders(text: str) -> str:
    """The text without the lines that look like orders to the model; a note stands for each run of them."""
    suspicion = injection_scan.suspicion
    if suspicion(text) is None:
        return text
    lines, kept = [*text.split("\n"), ""], list[str]()
    whys = [suspicion(line) for line in lines]
    for at, (line, after) in enumerate(pairwise(lines)):
        if whys[at] is None and whys[at + 1] is None and (why := suspicion(f"{line}\n{after}")) is not None:
            whys[at] = whys[at + 1] = why  # an order on two lines
        note = f"[left out: {whys[at]}]"
        if whys[at] is None:
            kept.append(line)
        elif not kept or kept[-1] != note:
            kept.append(note)
    return "\n".join(kept)
