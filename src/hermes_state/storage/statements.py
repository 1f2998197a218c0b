"""Named SQL.

Statements live in `sql/<noun>.sql`, each under a line `-- name: <name>` (for both engines) or
`-- name: <name> @postgresql` (that engine only), followed by a comment that says why. They are written with
`?` parameters. A few words differ between the dialects and are spelled as macros:

    {greatest}(a, b)    the larger of two values
    {lock}              lock the selected rows until the transaction ends (SQLite: the writer is alone already)
    IN {texts}          membership in a list of texts, given as one JSON array parameter
    IN {numbers}        the same for integers
    {now}               the moment given as a parameter; NULL on PostgreSQL means the server's clock

A text that several statements of a file share (a long list of columns) is written once under `-- let: <name>` and
used as {name}. Files are read at first use; no value is ever pasted into a statement.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_SQL = Path(__file__).parents[1] / "sql"
_NAME = re.compile(r"^-- (name|let): (\w+)(?: @(sqlite|postgresql))?[ \t]*$", re.MULTILINE)
_MACROS = {
    "sqlite": {
        "{greatest}": "max",
        "{lock}": "",
        "{texts}": "(SELECT value FROM json_each(?))",
        "{numbers}": "(SELECT value FROM json_each(?))",
        "{now}": "?",
    },
    "postgresql": {
        "{greatest}": "GREATEST",
        "{lock}": "FOR UPDATE",
        "{texts}": "(SELECT jsonb_array_elements_text(?::jsonb))",
        "{numbers}": "(SELECT jsonb_array_elements_text(?::jsonb)::bigint)",
        "{now}": "COALESCE(?::float8, extract(epoch FROM clock_timestamp())::float8)",
    },
}
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|\?|%")


class Statement:
    """One statement in both dialects; a connection picks its own."""

    __slots__ = ("name", "postgresql", "sqlite")

    def __init__(self, name: str, sqlite: str, postgresql: str) -> None:
        self.name = name
        self.sqlite = sqlite
        self.postgresql = postgresql

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


class Queries:
    """The statements of one `.sql` file, as attributes."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._found: dict[str, Statement] = {}

    def __getattr__(self, name: str) -> Statement:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._found:
            self._found = _parse(self._noun, (_SQL / f"{self._noun}.sql").read_text(encoding="utf-8"))
        try:
            statement = self._found[name]
        except KeyError:
            raise AttributeError(f"sql/{self._noun}.sql has no statement named {name!r}") from None
        self.__dict__[name] = statement  # the next look-up is an ordinary attribute
        return statement


def schema(dialect: str) -> list[str]:
    """The statements that make a fresh store."""
    return split(script(f"{dialect}/schema.sql"))


def migrations(dialect: str) -> list[tuple[int, str]]:
    """(version reached, file) of every numbered migration, in order."""
    files = sorted((_SQL / dialect / "migrations").glob("[0-9]*.sql"))
    return [(int(f.name.split("_")[0]), f"{dialect}/migrations/{f.name}") for f in files]


def script(name: str) -> str:
    return (_SQL / name).read_text(encoding="utf-8")


def split(text: str) -> list[str]:
    """The statements of a script. A `;` at the end of a line ends one; a trigger keeps its own within its lines."""
    bare = "\n".join(line.split("-- ")[0].rstrip() for line in text.splitlines())
    return [s.strip() for s in re.split(r";$", bare, flags=re.MULTILINE) if s.strip()]


@functools.lru_cache(maxsize=1024)
def to_postgresql(sql: str) -> str:
    """`?` parameters in psycopg's spelling; what stands in quotes or comments is left alone."""

    def swap(match: re.Match[str]) -> str:
        token = match.group()
        if token == "?":
            return "%s"
        return token.replace("%", "%%")

    return _TOKEN.sub(swap, sql)


def _parse(noun: str, text: str) -> dict[str, Statement]:
    texts: dict[str, dict[str, str]] = {}
    shared: dict[str, str] = {}
    marks = list(_NAME.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = _bare(text[mark.end() : following.start() if following else len(text)])
        for name, meaning in shared.items():
            body = body.replace(f"{{{name}}}", meaning)
        kind, name, only = mark.groups()
        if kind == "let":
            shared[name] = body
            continue
        variants = texts.setdefault(name, {})
        for dialect in (only,) if only else ("sqlite", "postgresql"):
            if only or dialect not in variants:  # a named dialect beats the shared text
                variants[dialect] = _expand(body, dialect)
    return {
        name: Statement(f"{noun}.{name}", v.get("sqlite", ""), to_postgresql(v.get("postgresql", "")))
        for name, v in texts.items()
    }


def _bare(sql: str) -> str:
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";")


def _expand(sql: str, dialect: str) -> str:
    for word, meaning in _MACROS[dialect].items():
        sql = sql.replace(word, meaning)
    return sql
