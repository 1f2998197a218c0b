"""Whether this machine knows the name localhost: a system fresh from debootstrap has no hosts file that says it."""

from __future__ import annotations

import socket

import pytest


def known() -> bool:
    try:
        return bool(socket.getaddrinfo("localhost", 80))
    except socket.gaierror:
        return False


needs_localhost = pytest.mark.skipif(not known(), reason="needs the name localhost, which /etc/hosts gives")
