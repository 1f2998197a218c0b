"""A configuration as a person or a client may see it (`hermes config show`, `config.get` of terminal clients).

`secrets` knows what a secret of this home is, by name and by shape. Here more is covered, because a value too many that
is covered in a view costs nothing: everything below a key such as `headers`, `auth` or `cookies`, and in every address
the password, a bare token before the `@`, and the values of its query and fragment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_config import secrets
from hermes_config.secrets import COVER

_SECTION = re.compile(r"(?:^|[_.-])(?:headers?|auth|authentication|cookies?|credentials?)$", re.IGNORECASE)
_WAYS = frozenset({"none", "oauth", "oauth2", "basic", "bearer", "digest", "token", "key", "apikey", "api_key"})
"""What `auth` may say of the way to log in, which is no secret."""
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:(?P<user>[^/\s@?#]*)@)?(?P<place>[^\s?#\"']*)"
    r"(?:\?(?P<query>[^\s#\"']*))?(?:#(?P<fragment>[^\s\"']*))?",
    re.IGNORECASE,
)


def presentable(value: Any, path: Sequence[str] = (), home: Path | None = None) -> Any:
    """What stands under `path` in config.yaml as plain data, its secrets covered."""
    below = any(map(_is_section, path[:-1])) or (bool(path) and _is_section(path[-1]) and not _is_way(value))
    return secrets.presentable(_covered(value, below), path, home)


def _covered(value: Any, below: bool) -> Any:
    """`below`: under a key whose every value is covered."""
    if isinstance(value, Mapping):
        return {
            key: _covered(item, below or (_is_section(str(key)) and not _is_way(item))) for key, item in value.items()
        }
    if isinstance(value, tuple | frozenset | list):
        return [_covered(item, below) for item in value]
    if value is None or value == "" or isinstance(value, bool):
        return value
    if below:
        return COVER
    return _ADDRESS.sub(_address, value) if isinstance(value, str) and "://" in value else value


def _is_section(name: str) -> bool:
    return _SECTION.search(name) is not None


def _is_way(value: Any) -> bool:
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
