"""The seeds' address for a turn's identity, which lives in `hermes_agent.context`."""

from hermes_agent.context import get_session_env, set_current_session_id

__all__ = ["get_session_env", "set_current_session_id"]
