"""Our servers and fakes beside programs of other people."""

from tests.gateway.api.conftest import door

__all__ = ["door"]
