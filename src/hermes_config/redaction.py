"""Redaction: finds the secrets of this home and covers them in texts that leave it.

Two kinds are covered: the home's own secrets (variables of the environment and `.env` and keys of config.yaml with the
name of a secret, passwords in URLs), and every text with the shape of a well-known key, whoever owns it. The rest of a
text stays unchanged.

Redaction applies to outgoing texts (logs, crash reports, exports, chats, the API), never to the input of a tool, a
model or the store. Known values are covered also as JSON, in an address and in base64. Short values are not covered,
because that would blank ordinary words; nor are parts of a value, or values in another encoding. A text without secrets
costs a few substring searches.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from hermes_config.errors import HermesError
from hermes_config.home import home_key

COVER = "[secret]"
SHORTEST = 8
"""The shortest value that is covered, in characters."""
_QUOTED = 40

# -- names ---------------------------------------------------------------------------------------------------------

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION)_?KEYS?|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE"
    r"|AUTHORIZATION|DSN)(?:_|$)|APIKEY",
    re.IGNORECASE,
)
# Names with other meanings too (a shortcut, an amount, a column): the value must also look like a secret.
_DOUBTFUL_NAME = re.compile(
    r"(?:^|_)(?:KEYS?|TOKENS|PASS|PAT|CREDENTIALS?|COOKIES?|AUTH|WEBHOOK(?:_URL)?)(?:_|$)|_PWD$", re.IGNORECASE
)
# The location or name of a secret is not secret.
_ABOUT_ONE = re.compile(
    r"_(?:FILE|PATH|DIR|SOCK|HOME|ENV|VAR|NAME|ID|TYPE|(?<!WEBHOOK_)UR[LI]|LIMIT|COUNT|RATES?|BUDGET|TTL|SECONDS|HEADER)$",
    re.IGNORECASE,
)
# `.env` is the file for secrets: every value in it counts as one unless it is plainly something else.
_PLAIN_NAME = re.compile(
    r"(?:^|_)(?:UR[LI]|HOST|PORT|MODELS?|PATH|DIR|FILE|HOME|USERS?|USERNAME|NAME|IDS?|CHANNELS?|ROOMS?|ENABLED|MODE|LEVEL"
    r"|TZ|TIMEZONE|LANG|LANGUAGE|LOCALE|PROVIDER|TIMEOUT|REGION|EMAIL|ADDRESS|FORMAT|THEME|SHELL|EDITOR|VERSION|DEBUG)$",
    re.IGNORECASE,
)
# For showing a configuration, where covering too much does no harm.
_SHOWN_COVERED = re.compile(r"key$|token$|_pat$|secret|passw|passphrase|credential", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# -- values --------------------------------------------------------------------------------------------------------

_PLAIN_VALUE = re.compile(r"[\d\s.,:+-]*|(?:/|~/|\./|[A-Za-z]:\\|https?://).*", re.DOTALL)
_MIXED = re.compile(r"(?=.*[A-Za-z]).*[0-9]", re.DOTALL)
_REFERENCE = re.compile(r"\$\{?\w+\}?")
_SCHEME = re.compile(r"(?:Bearer|Basic|Token)\s+", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@", re.IGNORECASE)
# Values that people write for a required key that is not needed.
_NO_SECRETS = frozenset({COVER, "not-needed", "no-key-required", "no-key-needed", "lm-studio", "changeme", "password"})
_BARE = re.compile(r"[A-Za-z0-9_.~-]+")
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_JSON_LEVELS = 3
"""An argument of a tool that another one calls is JSON in JSON in the JSON of a request."""


class _Shape(NamedTuple):
    """The shape of a well-known key. Every match contains `marker`; searching for it first is many times faster."""

    marker: str
    pattern: re.Pattern[str]
    cover: str = COVER


def _word(prefix: str, rest: str, *, within: str = "A-Za-z0-9") -> _Shape:
    """A key that begins with `prefix`, where a word begins; also after an escape in JSON text or a terminal's colour.

    The look-behind comes last, because an expression that begins with plain characters is searched quickly.
    """
    start = "|".join(
        (rf"(?<![{within}]{prefix})", rf"(?<=\\[nrtbf]{prefix})", rf"(?<=[0-9\[]m{prefix})", rf"(?<=\[K{prefix})")
    )
    return _Shape(prefix, re.compile(rf"{prefix}(?:{start}){rest}"))


_DIGIT_SOON = r"(?=[A-Za-z_+/.~-]{0,60}[0-9])"
# No possessive quantifier anywhere: before 3.11.5, Python matched too little with some of them.
_PEM_END = r"[^-\"]*(?:-(?!----)[^-\"]*)*-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_CUT = r"(?:(?:\\[rn]|\s)+[A-Za-z0-9+/=]{16,76})*"
_SHAPES = (
    _word("sk-", rf"{_DIGIT_SOON}[A-Za-z0-9_-]{{12,}}"),
    _Shape("k_live_", re.compile(r"[sr]k_live_[A-Za-z0-9]{10,}")),
    *(_Shape(f"gh{kind}_", re.compile(rf"gh{kind}_[A-Za-z0-9]{{16,}}")) for kind in "pousr"),
    _Shape("github_pat_", re.compile(r"github_pat_[A-Za-z0-9_]{20,}")),
    _Shape("glpat-", re.compile(r"glpat-[A-Za-z0-9_-]{12,}")),
    _Shape("xox", re.compile(r"xox[a-z]-[A-Za-z0-9-]{10,}")),
    _Shape("xapp-", re.compile(r"xapp-[0-9]-[A-Za-z0-9-]{10,}")),
    _word("AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _word("ASIA", r"(?=[A-Z]{0,15}[0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _Shape("AIza", re.compile(r"AIza[A-Za-z0-9_-]{30,}")),
    _word("gsk_", r"[A-Za-z0-9]{20,}"),
    _word("xai-", r"[A-Za-z0-9]{20,}"),
    _word("hf_", r"[A-Za-z0-9]{30,}"),
    _word("npm_", r"[A-Za-z0-9]{30,}"),
    _Shape("pypi-", re.compile(r"pypi-[A-Za-z0-9_-]{50,}")),
    _Shape(":AA", re.compile(r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")),
    _word("eyJ", r"[\w-]{8,4000}\.eyJ[\w-]{8,20000}\.[\w-]*", within=r"\w-"),
    _Shape("PRIVATE KEY", re.compile(
        rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----(?:{_PEM_END}|{_PEM_CUT})"
    )),
    _Shape("://", re.compile(r"(://[^/\s:@\"\\]{0,100}:)(?!\[secret\]@)[^/\s@\"\\]{1,200}@"), rf"\1{COVER}@"),
    *(
        _Shape(word, re.compile(rf"({word}\s{{1,4}}){_DIGIT_SOON}[A-Za-z0-9._~+/-]{{16,}}={{0,2}}"), rf"\1{COVER}")
        for word in ("Bearer", "bearer", "Basic")
    ),
    # NAME=value, as `env` and an .env of some other project show it.
    *(
        _Shape(word, re.compile(
            rf"({word}(?:\\?[\"'])?\s?[=:]\s?(?:\\?[\"'])?){_DIGIT_SOON}[A-Za-z0-9_+/.~-]{{12,}}"
            r"(?![A-Za-z0-9_+/.~-])={0,2}(?![(\[])"
        ), rf"\1{COVER}")
        for word in ("_KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD")
    ),
)  # fmt: skip


# For growing texts: a secret is one run of such characters, or one of the longer forms below.
_RUN = re.compile(r"[!-~]+")
_NO_RUN = re.compile(r"[^!-~]")
_LONGEST_RUN = 8_000
_LONGEST_PEM = 20_000
_PEM_ENDED = re.compile(r"-----END [^-]{0,60}-----")
# A word that ends a sentence or a part of it, and with which no well-known key begins.
_SENTENCE_END = re.compile(
    r"(?!.*(?:eyJ|AKIA|ASIA|AIza|xox|Bearer|bearer|Basic|TOKEN|SECRET|PASSW))[A-Za-z'’]{1,30}[.,;!?…)]{1,3}", re.DOTALL
)
_CONTEXT = re.compile(r"[!-~]*(?:Bearer|bearer|Basic|_KEY|TOKEN|SECRET|PASSWORD|PASSWD)(?:\\?[\"'])?\s?[=:]?\s{0,4}\Z")


class Redactor:
    """Covers secrets in texts and counts the covered places."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms = _forms(frozenset(values))
        self._long_forms = [form for form in self._forms if not _RUN.fullmatch(form)]
        self.places = 0

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                self.places += text.count(form)
                text = text.replace(form, COVER)
        for marker, pattern, cover in _SHAPES:
            if marker in text:
                text, places = pattern.subn(cover, text)
                self.places += places
        return text

    def settled(self, text: str) -> int:
        """The length of a growing text that can be shown now: no secret crosses its end."""
        tail = text[: -_LONGEST_RUN - 1 : -1]
        boundary = _NO_RUN.search(tail)
        if boundary is not None:
            end = len(text) - boundary.start()
        else:
            end = 0 if len(tail) == len(text) else len(text) - _LONGEST_RUN // 2
        if (context := _CONTEXT.search(text, max(0, end - 80), end)) is not None:
            end = context.start()
        elif _SENTENCE_END.fullmatch(text, end) and not any(_partial_match(form, text) for form in self._forms):
            end = len(text)
        begun = text.rfind("-----BEGIN")
        if begun >= 0 and len(text) - begun <= _LONGEST_PEM:
            ended = _PEM_ENDED.search(text, begun)
            end = min(end, begun) if ended is None else max(end, ended.end())
        for form in self._long_forms:
            end = min(end, len(text) - _partial_match(form, text))
            whole = text.find(form, max(0, end - len(form) + 1))
            end = whole if 0 <= whole < end else end
        return end

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms, {self.places} places)"


def _partial_match(form: str, text: str) -> int:
    """The number of characters at the end of the text that may begin the form."""
    return next((n for n in range(min(len(form) - 1, len(text)), 0, -1) if text.endswith(form[:n])), 0)


def redactor(home: Path | None = None) -> Redactor:
    """A redactor with the secrets of a home (by default the current one) and of this process."""
    return Redactor(known(home))


def redacted(text: str, home: Path | None = None) -> str:
    """The text with its secrets covered."""
    return redactor(home)(text)


def current() -> Redactor:
    """A shared redactor for many texts; its secrets are at most a second old."""
    return _in_second(home_key(), int(time.monotonic()))


@lru_cache(maxsize=16)
def _in_second(_home: object, _second: int) -> Redactor:
    return redactor()


_given: deque[str] = deque(maxlen=64)
"""Secrets from neither a file nor a variable, the newest last."""


def keep_out(secret: str) -> None:
    """Cover this value, too, from now on: a key that the program got at run time."""
    if secret and secret not in _given:
        _given.append(secret)
        _in_second.cache_clear()


def known(home: Path | None = None) -> frozenset[str]:
    """The secret values of a home and this process. An unreadable home adds none, as nothing of it was loaded."""
    from hermes_config import config  # reading it is for those who have something to cover

    found = _of_entries(os.environ.items())
    try:
        loaded, _ = config.load_or_last_good(home)
    except HermesError:
        return frozenset((*found, *_given))
    return frozenset(
        (*found, *_given, *_of_entries(loaded.dotenv.items(), kept_for_secrets=True), *_of_tree(loaded.tree))
    )


def redacted_document(value: Any) -> Any:
    """A value of JSON with the secrets in its texts covered."""
    if isinstance(value, Mapping):
        return {name: redacted_document(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_document(one) for one in value]
    return current()(value) if isinstance(value, str) else value


def presentable(value: Any, path: Sequence[str] = (), home: Path | None = None) -> Any:
    """The configuration under `path` as plain data for a person or a client, with its secrets covered.

    This covers more than in a text, because covering too much does no harm here: everything below a key named like a
    secret, or such as `headers`, `auth` or `cookies`; and in every address the password, a bare token before the `@`,
    and the values of its query and fragment.
    """
    covered = any(map(is_covered_name, path)) or any(map(_is_section, path[:-1]))
    covered = covered or (bool(path) and _is_section(path[-1]) and not _is_login_method(value))
    return _presentable(value, path[-1] if path else "", covered, redactor(home))


def _presentable(value: Any, name: str, covered: bool, redact: Redactor) -> Any:
    if isinstance(value, Mapping):
        return {
            redact(str(key)): _presentable(
                item,
                str(key),
                covered or is_covered_name(str(key)) or (_is_section(str(key)) and not _is_login_method(item)),
                redact,
            )
            for key, item in value.items()
        }
    if isinstance(value, tuple | frozenset | list):
        return [_presentable(item, name, covered, redact) for item in value]
    if value is None or value == "" or isinstance(value, bool):
        return value
    if covered or (isinstance(value, str) and _is_probably_secret(name, value)):
        return COVER
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, str):
        return redact(_ADDRESS.sub(_address, value) if "://" in value else value)
    return value


def shown(value: object) -> str:
    """An invalid value for an error message: short, with secrets covered."""
    text = Redactor()(repr(value) if isinstance(value, str | int | float) else type(value).__name__)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}…"


def is_covered_name(name: str) -> bool:
    """Whether a setting of this name is shown covered."""
    if is_secret_name(name) or name.lower().endswith("database_url"):
        return True
    return bool(_SHOWN_COVERED.search(name)) and not _ABOUT_ONE.search(_words(name))


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a variable or key of this name holds a secret, whatever its value."""
    return any(_SECRET_NAME.search(one) and not _ABOUT_ONE.search(one) for one in map(_words, _meant(name)))


@lru_cache(maxsize=1024)
def _is_doubtful_name(name: str) -> bool:
    plain = _words(name)
    return bool(_DOUBTFUL_NAME.search(plain)) and not _ABOUT_ONE.search(plain)


def _meant(name: str) -> tuple[str, ...]:
    """A name and, if it may be an account's variable (TOKEN__HOME), the platform's: each may say that it is secret."""
    start = name.partition("__")[0]
    return (name, start) if start not in ("", name) else (name,)


def _words(name: str) -> str:
    return _HUMP.sub("_", name).replace("-", "_").replace(".", "_")


def _is_probably_secret(name: str, value: str) -> bool:
    return _is_doubtful_name(name) and bool(_MIXED.match(value)) and value[0] not in "/~"


def _is_plain(name: str, value: str) -> bool:
    return bool(all(map(_PLAIN_NAME.search, _meant(name))) or _PLAIN_VALUE.fullmatch(value))


def _of_entries(entries: Iterable[tuple[str, str]], *, kept_for_secrets: bool = False) -> list[str]:
    found: list[str] = []
    for name, value in entries:
        if len(value) < SHORTEST:
            continue
        password = _URL_PASSWORD.match(value) if "://" in value else None
        if password:
            found += _pieces(password[1])
        elif (
            is_secret_name(name)
            or _is_probably_secret(name, value)
            or (kept_for_secrets and not _is_plain(name, value))
        ):
            found += _pieces(value)
    return found


def _of_tree(value: Any, name: str = "") -> Iterator[str]:
    """The secrets in config.yaml. Items of a list have the list's name."""
    if isinstance(value, str):
        yield from _of_entries([(name, value)])
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _of_tree(item, str(key))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _of_tree(item, name)


def _pieces(value: str) -> Iterator[str]:
    """The secrets in a value: without a scheme word before a token, each of several keys, none too short."""
    value = value.strip()
    if scheme := _SCHEME.match(value):
        value = value[scheme.end() :]
    for piece in {value, *value.split(",")}:
        piece = piece.strip()
        if len(piece) >= SHORTEST and piece.lower() not in _NO_SECRETS and not _REFERENCE.fullmatch(piece):
            yield piece


@lru_cache(maxsize=16)
def _forms(values: frozenset[str]) -> tuple[str, ...]:
    """The forms in which the values may appear in a text, longest first, so that the longest match is covered."""
    found = {value for value in values if len(value) >= SHORTEST}
    for value in tuple(found):
        found.update(_in_base64(value))
        if not _BARE.fullmatch(value):
            import json
            from urllib.parse import quote, quote_plus

            for ascii_only in (True, False):
                written = value
                for _ in range(_JSON_LEVELS):
                    written = json.dumps(written, ensure_ascii=ascii_only)[1:-1]
                    found.add(written)
            encoded = {way(value, safe=safe, errors="replace") for way in (quote, quote_plus) for safe in ("", "/")}
            found |= {
                repr(value)[1:-1],
                *encoded,
                *(_PERCENT.sub(lambda code: code[0].lower(), one) for one in encoded),
            }
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def _in_base64(value: str) -> Iterator[str]:
    """The characters that a value alone decides, wherever in the encoded bytes it begins."""
    from base64 import b64encode

    for before, first in enumerate((0, 2, 3)):
        data = bytes(before) + value.encode("utf-8", "surrogatepass")
        form = b64encode(data).decode()[first : len(data) * 8 // 6]
        yield from (form, form.replace("+", "-").replace("/", "_"))


_SECTION = re.compile(r"(?:^|[_.-])(?:headers?|auth|authentication|cookies?|credentials?)$", re.IGNORECASE)
_WAYS = frozenset({"none", "oauth", "oauth2", "basic", "bearer", "digest", "token", "key", "apikey", "api_key"})
"""Values of `auth` that name a login method, which is not secret."""
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:(?P<user>[^/\s@?#]*)@)?(?P<place>[^\s?#\"']*)"
    r"(?:\?(?P<query>[^\s#\"']*))?(?:#(?P<fragment>[^\s\"']*))?",
    re.IGNORECASE,
)


def _is_section(name: str) -> bool:
    return _SECTION.search(name) is not None


def _is_login_method(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() in _WAYS


def _address(found: re.Match[str]) -> str:
    user, query, fragment = found["user"], found["query"], found["fragment"]
    login = ""
    if user is not None:
        name, colon, password = user.partition(":")
        login = f"{name}:{COVER if password else ''}@" if colon else f"{COVER}@"
    more = "" if query is None else "?" + "&".join(map(_parameter, query.split("&")))
    return f"{found['scheme']}{login}{found['place']}{more}{'' if not fragment else f'#{COVER}'}"


def _parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if equals:
        return f"{name}={COVER}" if value else text
    return COVER if name else ""
