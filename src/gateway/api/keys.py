"""The API's key: made once, kept in `<home>/.env`, compared in constant time, shown by nobody but `hermes api key`."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_config import config as configuration
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from hermes_config.config import Config

VARIABLE = "API_SERVER_KEY"
SHORTEST = 16


def configured(config: Config) -> str | None:
    """The key of this home; None when there is none yet. One that is too short is refused, not used."""
    key = (config.environ(VARIABLE) or "").strip()
    if not key:
        return None
    if len(key) < SHORTEST:
        raise ConfigError(
            f"has fewer than {SHORTEST} characters",
            file=str(config.home / ".env"),
            key=VARIABLE,
            hint="Take it out; hermes api key makes a good one.",
        )
    return key


def in_force(home: Path, known: str) -> str:
    """The key as the files say it now, for two looks at their stamps; `known`, as long as they hold none."""
    try:
        return configured(configuration.load_or_last_good(home)[0]) or known
    except ConfigError:
        return known


def make(home: Path) -> str:
    """A new key, added to `.env`; the one that another process has put there meanwhile, if so."""
    key = f"hk-{secrets.token_urlsafe(32)}"
    if configuration.add_variable(VARIABLE, key, home):
        return key
    found = configured(configuration.load(home))
    if found is None:
        raise ConfigError("is there and empty", file=str(home / ".env"), key=VARIABLE, hint="Take the line out.")
    return found


def replace(home: Path) -> str:
    """Another key in place of the one in `.env`, because a person asked for it."""
    configuration.remove_variable(VARIABLE, home)
    return make(home)


def key_id(key: str) -> str:
    """A name for the key that can be stored and shown: nothing leads back from it."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def matches(key: str, shown: str) -> bool:
    return hmac.compare_digest(key.encode(), shown.encode("utf-8", "surrogatepass"))
