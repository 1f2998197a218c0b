"""Which wire an endpoint speaks."""

from __future__ import annotations

from hermes_agent.models.base import Endpoint, Wire


def wire_for(endpoint: Endpoint) -> Wire:
    """The endpoint's provider format. Wires have no state: the same object serves every conversation."""
    raise NotImplementedError
