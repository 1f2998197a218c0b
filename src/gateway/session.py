"""`SessionStore` and its data, where tests of the specification import them; the code is in `gateway.routes`."""

from gateway.routes.compat import AsyncSessionStore, SessionStore
from gateway.routes.keys import build_session_key, is_shared_multi_user_session
from gateway.routes.source import SessionEntry, SessionSource

__all__ = [
    "AsyncSessionStore",
    "SessionEntry",
    "SessionSource",
    "SessionStore",
    "build_session_key",
    "is_shared_multi_user_session",
]
