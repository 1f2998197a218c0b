"""Search engines for a `FakeInternet`, as strict as their documentation: SearXNG and the Brave Search API.

internet.site("searx.example", FakeSearXNG(hits))
internet.site("api.search.brave.com", FakeBrave(hits, key="k"))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.web.internet import FakePage, WebVisit

Hit = Mapping[str, str]
"""`url`, `title`, `snippet` and, if known, `date`."""


def _asked(visit: WebVisit) -> tuple[str, dict[str, str]]:
    parts = urlsplit(visit.path)
    return parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))


def _json(found: Any, status: int = 200) -> FakePage:
    return FakePage(json.dumps(found), "application/json", status)


class FakeSearXNG:
    """docs.searxng.org/dev/search_api: a format that its settings do not list is refused with 403."""

    _KNOWN = frozenset(
        {"q", "categories", "engines", "language", "pageno", "time_range", "format", "safesearch", "autocomplete"}
    )

    def __init__(self, hits: Sequence[Hit] = (), *, formats: Sequence[str] = ("html", "json"), page: int = 10) -> None:
        self.hits, self.formats, self._page = list(hits), tuple(formats), page
        self.unresponsive: list[list[str]] = []
        self.queries: list[dict[str, str]] = []

    def __call__(self, visit: WebVisit) -> FakePage:
        path, asked = _asked(visit)
        if path not in ("/", "/search"):
            return FakePage("not found", status=404)
        if asked.get("format", "html") not in self.formats:
            return FakePage("Forbidden", status=403)
        number = asked.get("pageno", "1")
        fine = asked.keys() <= self._KNOWN and number.isdecimal() and number != "0" and bool(asked.get("q", "").strip())
        if not fine or asked.get("time_range", "day") not in ("day", "month", "year"):
            return FakePage("Bad Request", status=400)
        self.queries.append(asked)
        if asked.get("format") != "json":
            return FakePage("<html><body>results for people</body></html>")
        first = (int(number) - 1) * self._page
        results = [
            {"url": hit["url"], "title": hit["title"], "content": hit.get("snippet", ""), "engine": "test",
             "template": "default.html", "publishedDate": hit.get("date"), "score": 1.0, "category": "general"}
            for hit in self.hits[first : first + self._page]
        ]  # fmt: skip
        return _json({
            "query": asked["q"], "number_of_results": len(self.hits), "results": results, "answers": [],
            "corrections": [], "infoboxes": [], "suggestions": [], "unresponsive_engines": self.unresponsive,
        })  # fmt: skip


class FakeBrave:
    """api-dashboard.search.brave.com: a token in a header, 400 characters or 50 words, 20 results, 10 pages."""

    _KNOWN = frozenset(
        {"q", "country", "search_lang", "ui_lang", "count", "offset", "safesearch", "freshness", "text_decorations",
         "spellcheck", "result_filter", "extra_snippets", "summary"}
    )  # fmt: skip

    def __init__(self, hits: Sequence[Hit] = (), *, key: str) -> None:
        self.hits, self._key, self.limited = list(hits), key, False
        self.queries: list[dict[str, str]] = []

    def __call__(self, visit: WebVisit) -> FakePage:
        path, asked = _asked(visit)
        headers = {name.lower(): value for name, value in visit.headers.items()}
        if path != "/res/v1/web/search":
            return _json({"type": "ErrorResponse"}, 404)
        if headers.get("x-subscription-token") != self._key:
            return _error(422, "SUBSCRIPTION_TOKEN_INVALID", "The provided subscription token is invalid.")
        if headers.get("accept", "*/*") not in ("*/*", "application/json"):
            return _error(406, "NOT_ACCEPTABLE", "Only application/json is served.")
        if self.limited:
            return _error(429, "RATE_LIMITED", "Request rate limit exceeded for plan.")
        query, count, offset = asked.get("q", ""), asked.get("count", "20"), asked.get("offset", "0")
        if (
            not asked.keys() <= self._KNOWN
            or not 0 < len(query) <= 400
            or len(query.split()) > 50
            or not (count.isdecimal() and 1 <= int(count) <= 20)
            or not (offset.isdecimal() and 0 <= int(offset) <= 9)
            or asked.get("freshness", "pd") not in ("pd", "pw", "pm", "py")
        ):
            return _error(422, "VALIDATION", "Unable to validate request parameter(s)")
        self.queries.append(asked)
        first = int(count) * int(offset)
        results = [
            {"type": "search_result", "url": hit["url"], "title": hit["title"], "description": hit.get("snippet", ""),
             **({"age": hit["date"]} if "date" in hit else {})}
            for hit in self.hits[first : first + int(count)]
        ]  # fmt: skip
        return _json({
            "type": "search", "query": {"original": query, "more_results_available": False},
            "web": {"type": "search", "results": results, "family_friendly": True},
        })  # fmt: skip


def _error(status: int, code: str, detail: str) -> FakePage:
    return _json({"type": "ErrorResponse", "error": {"code": code, "detail": detail, "status": status}}, status)
