"""Dialling a host with several addresses, of which some refuse and some say nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop

from hermes_agent.models.http import dial

Address = tuple[str, int]


@pytest.fixture
def live() -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()


@pytest.fixture
def refusing() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        found: Address = closed.getsockname()
    return found


@pytest.fixture
def silent() -> Iterator[Address]:
    """Its queue is full and nobody accepts: whoever comes next hears nothing."""
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()


Reach = Callable[..., Address]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def reached(request: pytest.FixtureRequest) -> Reach:
    """Who was reached of a host with these addresses, on the loop of a terminal and on that of a gateway."""

    def reach(*addresses: Address) -> Address:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(_dial(addresses))

    return reach


async def _dial(addresses: tuple[Address, ...], *, seconds: float = 5.0) -> Address:
    loop = asyncio.get_running_loop()
    real = loop.getaddrinfo

    async def resolved(host: Any, port: Any, **options: Any) -> list[Any]:
        if host != "several.example":
            return await real(host, port, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", one) for one in addresses]

    loop.getaddrinfo = resolved  # type: ignore[method-assign]
    async with asyncio.timeout(seconds):
        made = await dial("several.example", 80)
    with made:
        peer: Address = made.getpeername()
        return peer


def test_the_next_address_is_tried_at_once_when_one_refuses(reached: Reach, live: Address, refusing: Address) -> None:
    assert reached(refusing, refusing, live) == live


def test_an_address_that_says_nothing_is_not_waited_for(reached: Reach, live: Address, silent: Address) -> None:
    assert reached(silent, live) == live


def test_when_all_refuse_the_reason_is_told(reached: Reach, refusing: Address) -> None:
    with pytest.raises(ConnectionRefusedError):
        reached(refusing, refusing)


def test_a_host_without_addresses_is_an_error(reached: Reach) -> None:
    with pytest.raises(OSError, match=r"several\.example"):
        reached()
