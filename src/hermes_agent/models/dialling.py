"""A connection to the first address of a host that answers (RFC 8305).

The addresses are tried in the resolver's order, families in turns: the next one after a quarter of a second, or at once
when one has failed. So a machine whose IPv6 leads nowhere waits a moment, and not until the call is given up. asyncio's
own event loop can do as much; uvloop, which the gateway runs on, tries one after the other.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

_NEXT_SECONDS = 0.25
_Address = tuple[int, int, int, str, Any]


async def dialled(host: str, port: int) -> socket.socket:
    """A connected socket, for an event loop to make a transport of. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    waiting, running = deque(_in_turns(found)), set[asyncio.Task[socket.socket]]()
    failed: BaseException = OSError(f"no address is known for {host}")
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(_one(waiting.popleft())))
            done, running = await asyncio.wait(
                running, timeout=_NEXT_SECONDS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            made = [one.result() for one in done if one.exception() is None]
            for spare in made[1:]:
                spare.close()
            if made:
                return made[0]
            failed = next((error for one in done if (error := one.exception()) is not None), failed)
    finally:
        for one in running:
            one.cancel()
            one.add_done_callback(_close)
    raise failed


async def _one(address: _Address) -> socket.socket:
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made


def _close(late: asyncio.Task[socket.socket]) -> None:
    """It was connected in the moment it was given up."""
    if not late.cancelled() and late.exception() is None:
        late.result().close()


def _in_turns(found: Sequence[_Address]) -> list[_Address]:
    """Families one after the other, each in its own order."""
    first = [one for one in found if one[0] == found[0][0]]
    others = [one for one in found if one[0] != found[0][0]]
    return [one for one in chain.from_iterable(zip_longest(first, others)) if one is not None]
