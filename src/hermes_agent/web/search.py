"""Search engines for `web_search`: SearXNG, Brave Search, and those of plug-ins.

`backends` decides which one is asked. A plug-in adds one with `ctx.register_web_search_provider(name, search)`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from hermes_agent.tools import output
from hermes_agent.web.addresses import AddressRefused, WebPolicy, parse
from hermes_agent.web.backends import BRAVE_KEY, HOW, TIMES, backend_of
from hermes_agent.web.client import FetchFailed
from hermes_agent.web.pages import web_client, without_orders
from hermes_cli import plugins
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_agent.tools.base import ToolContext

BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
_BRAVE_CHARS, _BRAVE_WORDS, _BRAVE_COUNT, _BRAVE_PAGES = 400, 50, 20, 10  # as its documentation says
_TITLE_CHARS, _SNIPPET_CHARS, _URL_CHARS = 200, 400, 1_000


class SearchFailed(HermesError):
    """The search could not be made."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    text: str
    count: int
    page: int
    """From 1."""
    time: str = ""
    """day, month, year, or empty."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    url: str
    title: str
    snippet: str = ""
    date: str = ""


async def search(query: SearchQuery, ctx: ToolContext) -> list[SearchHit]:
    """The hits of the configured engine, cleaned and bounded. Raises `HermesError`."""
    name = backend_of(ctx.config)
    if not name:
        raise SearchFailed("no search engine is configured", hint=HOW)
    engine = {"searxng": _searxng, "brave": _brave}.get(name)
    found = await (engine(query, ctx) if engine is not None else _of_plugin(name, query, ctx))
    hits: dict[str, SearchHit] = {}
    for hit in found:
        try:
            url = parse(hit.url).text
        except AddressRefused:
            continue
        if len(url) <= _URL_CHARS:
            hits.setdefault(url, _clean(hit, url))
    return list(hits.values())[: query.count]


def _clean(hit: SearchHit, url: str) -> SearchHit:
    def line(text: Any, most: int) -> str:
        return without_orders(" ".join(output.clean(str(text or "")).split())[:most])

    return SearchHit(url, line(hit.title, _TITLE_CHARS), line(hit.snippet, _SNIPPET_CHARS), line(hit.date, 40))


async def _searxng(query: SearchQuery, ctx: ToolContext) -> list[SearchHit]:
    base = str(ctx.config.web.searxng_url)
    home = parse(base)
    # The owner's own address may be a private one, for searching alone.
    named = f"[{home.host}]" if ":" in home.host else home.host
    policy = WebPolicy.of(ctx.config)
    policy = replace(policy, private_hosts=policy.private_hosts | {f"{named}:{home.port}"})
    asked = {"q": query.text, "format": "json", "pageno": query.page}
    if query.time:
        asked["time_range"] = query.time
    address = f"{base.rstrip('/').removesuffix('/search')}/search?{urlencode(asked)}"
    status, found = await _json(address, ctx, policy)
    if status == 403:
        hint = "Add json to search.formats in its settings.yml."
        raise SearchFailed(f"SearXNG at {home.host} refuses the format json", hint=hint)
    if status != 200 or not isinstance(found, dict):
        raise SearchFailed(f"SearXNG at {home.host} answers with status {status}")
    rows = found.get("results") or ()
    silent = found.get("unresponsive_engines")
    if not rows and silent:
        raise SearchFailed("none of SearXNG's engines answered", hint=f"It says: {json.dumps(silent)[:200]}")
    return _hits(rows, snippet="content", date="publishedDate")


async def _brave(query: SearchQuery, ctx: ToolContext) -> list[SearchHit]:
    key = str(ctx.config.environ(BRAVE_KEY))
    words = " ".join(query.text.split()[:_BRAVE_WORDS])[:_BRAVE_CHARS]
    if query.page > _BRAVE_PAGES:
        return []
    asked: dict[str, Any] = {
        "q": words, "count": min(query.count, _BRAVE_COUNT), "offset": query.page - 1, "text_decorations": "false",
    }  # fmt: skip
    if query.time:
        asked["freshness"] = TIMES[query.time]
    headers = {"Accept": "application/json", "X-Subscription-Token": key}
    status, found = await _json(f"{BRAVE_URL}?{urlencode(asked)}", ctx, WebPolicy.of(ctx.config), headers)
    if status in (401, 403, 422):
        raise SearchFailed(f"Brave Search refuses the request (status {status})", hint=f"Check {BRAVE_KEY} in .env.")
    if status == 429:
        raise SearchFailed("Brave Search has no more requests left for this key at the moment", hint="Wait a while.")
    if status != 200 or not isinstance(found, dict):
        raise SearchFailed(f"Brave Search answers with status {status}")
    return _hits((found.get("web") or {}).get("results") or (), snippet="description", date="age")


async def _json(
    address: str, ctx: ToolContext, policy: WebPolicy, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    response = await web_client(ctx, policy).get(address, headers)
    try:
        return response.status, await asyncio.to_thread(json.loads, response.body) if response.status == 200 else None
    except ValueError as error:
        raise SearchFailed(f"{parse(address).host} answered with something that is not JSON") from error


async def _of_plugin(name: str, query: SearchQuery, ctx: ToolContext) -> list[SearchHit]:
    row = plugins.get_web_search_providers()[name]
    seconds = ctx.db.limits.web_seconds
    facts = {"count": query.count, "page": query.page, "time": query.time}
    found = await plugins.call_plugin(row.search, query.text, seconds=seconds, **facts)
    if not isinstance(found, list | tuple):
        raise FetchFailed(f"the search engine {name} gave no list of results")
    return _hits(found)


def _hits(rows: Iterable[Any], *, snippet: str = "snippet", date: str = "date") -> list[SearchHit]:
    return [
        SearchHit(str(row.get("url") or ""), row.get("title") or "", row.get(snippet) or "", row.get(date) or "")
        for row in rows
        if isinstance(row, Mapping)
    ]
