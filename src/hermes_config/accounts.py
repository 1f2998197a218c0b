"""Accounts: a second account of a platform, such as a bot for work, is a platform of its own by name.

`slack` is the first account, `slack@work` another one. Whatever is stored by platform (routes, messages,
deliveries, people, cursors) is thereby kept apart. What a setting says about a platform by its name, such as
`platform_toolsets.slack`, counts for all its accounts that have no entry of their own (`told`). What is under
`platforms.slack`, and who may write there, counts for that account alone.

A variable of an account is the platform's with `__ACCOUNT` behind it: `SLACK_BOT_TOKEN__WORK`. No account uses a
variable of another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from hermes_config.schema import shown

T = TypeVar("T")
_MARK = "@"
_ACCOUNT = re.compile(r"[a-z0-9_-]{1,32}")
_SINGLE = frozenset({"local", "api_server"})
"""The terminal and the HTTP API, which are no services with accounts."""


def platform_of(name: str) -> str:
    """`slack` of `slack@work`; any other name is returned as it is."""
    return name.partition(_MARK)[0]


def account_of(name: str) -> str:
    """`work` of `slack@work`; empty for a platform's first account."""
    return name.partition(_MARK)[2]


def is_account(name: str) -> bool:
    return _MARK in name


def fault(name: str) -> str:
    """Why this cannot be the name of an account; empty for a good name, and for one without `@`."""
    platform, mark, account = name.partition(_MARK)
    if not mark:
        return ""
    if platform in _SINGLE:
        return f"{platform} has no accounts"
    if not _ACCOUNT.fullmatch(account):
        return f"{shown(account)} is not the name of an account: 1 to 32 letters (a to z), digits, - and _"
    return ""


def variable(name: str, platform: str) -> str:
    """A platform's variable as an account has it: `SLACK_BOT_TOKEN__WORK` for `slack@work`."""
    account = account_of(platform)
    return f"{name}__{account.upper().replace('-', '_')}" if name and account else name


def names(platform: str) -> tuple[str, ...]:
    """The names under which something may be said about a platform, the one that counts first."""
    return (platform, platform_of(platform)) if is_account(platform) else (platform,)


def told(table: Mapping[str, T], platform: str, default: T) -> T:
    """What a table says about a platform: the account's entry, else the platform's, else `default`."""
    return next((table[name] for name in names(platform) if name in table), default)
