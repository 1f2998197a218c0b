"""The API's keys: made once, kept in `<home>/.env`, compared in constant time, shown by nobody but `hermes api key`.

There are two. The client key (`API_SERVER_KEY`) has its own conversations and no terminal, no files and no approvals;
it is the one to give to another program. The owner key (`API_SERVER_OWNER_KEY`) is the owner: it exists only when
somebody made it, and `/api/ws` takes no other.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from hermes_config import config as configuration
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from hermes_config.config import Config

KeyRole = Literal["client", "owner"]
VARIABLES: Mapping[KeyRole, str] = MappingProxyType({"client": "API_SERVER_KEY", "owner": "API_SERVER_OWNER_KEY"})
SHORTEST = 16


def configured(config: Config, role: KeyRole = "client") -> str | None:
    """The key of this home for this role; None when there is none. One that is too short is refused, not used."""
    variable = VARIABLES[role]
    key = (config.environ(variable) or "").strip()
    if not key:
        return None
    if len(key) < SHORTEST:
        raise _wrong(config, variable, f"has fewer than {SHORTEST} characters")
    return key


def all_configured(config: Config) -> dict[KeyRole, str]:
    """Every key of this home. One text cannot be both keys."""
    found: dict[KeyRole, str] = {role: key for role in VARIABLES if (key := configured(config, role)) is not None}
    if len(found) == 2 and matches(found["client"], found["owner"]):
        raise _wrong(config, VARIABLES["owner"], f"is the same as {VARIABLES['client']}")
    return found


def in_force(home: Path, known: dict[KeyRole, str]) -> dict[KeyRole, str]:
    """The keys as the files say them now, for two looks at their stamps; `known` while they make no sense."""
    try:
        return all_configured(configuration.load_or_last_good(home)[0])
    except ConfigError:
        return known


def make(home: Path, role: KeyRole = "client") -> str:
    """A new key, added to `.env`; the one that another process has put there meanwhile, if so."""
    key = f"hk-{secrets.token_urlsafe(32)}"
    variable = VARIABLES[role]
    if configuration.add_variable(variable, key, home):
        return key
    found = configured(configuration.load(home), role)
    if found is None:
        raise ConfigError("is there and empty", file=str(home / ".env"), key=variable, hint="Take the line out.")
    return found


def replace(home: Path, role: KeyRole = "client") -> str:
    """Another key in place of the one in `.env`, because a person asked for it."""
    configuration.remove_variable(VARIABLES[role], home)
    return make(home, role)


def key_id(key: str) -> str:
    """A name for the key that can be stored and shown: nothing leads back from it."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def matches(key: str, shown: str) -> bool:
    return hmac.compare_digest(key.encode(), shown.encode("utf-8", "surrogatepass"))


def _wrong(config: Config, variable: str, reason: str) -> ConfigError:
    hint = "Take it out; hermes api key makes a good one."
    return ConfigError(reason, file=str(config.home / ".env"), key=variable, hint=hint)
