"""The store: the only package that runs SQL.

`SessionDB` is the store, `AsyncSessionDB` the same for event loops. Names are imported on first use, so that `import
hermes_state` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state.conversations.ledger import Handle as Handle
    from hermes_state.errors import HeadMoved as HeadMoved
    from hermes_state.errors import IntegrityError as IntegrityError
    from hermes_state.errors import OutcomeUnknown as OutcomeUnknown
    from hermes_state.errors import SessionEnded as SessionEnded
    from hermes_state.errors import SessionNotFound as SessionNotFound
    from hermes_state.errors import StaleFence as StaleFence
    from hermes_state.errors import StateError as StateError
    from hermes_state.session_db import AsyncSessionDB as AsyncSessionDB
    from hermes_state.session_db import SessionDB as SessionDB

_WHERE = {
    "AsyncSessionDB": "session_db",
    "Handle": "conversations.ledger",
    "HeadMoved": "errors",
    "IntegrityError": "errors",
    "OutcomeUnknown": "errors",
    "SessionDB": "session_db",
    "SessionEnded": "errors",
    "SessionNotFound": "errors",
    "StaleFence": "errors",
    "StateError": "errors",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
