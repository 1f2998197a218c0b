"""A turn's identity, at the address that tests of the specification import; the code is in `hermes_agent.context`."""

from hermes_agent.context import get_session_env, set_current_session_id

__all__ = ["get_session_env", "set_current_session_id"]
