"""`GET /models` of servers that are no model servers, or are odd ones: a list or nothing, and never long."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from hermes_agent.models import model_list

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


@contextlib.contextmanager
def answering(*parts: bytes, pause: float = 0.0) -> Iterator[str]:
    """The address of a server that answers each connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(4096)
                        for part in parts:
                            connection.sendall(part)
                            time.sleep(pause)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)


def test_a_server_that_speaks_no_http_is_a_wrong_answer() -> None:
    with answering(b"SSH-2.0-OpenSSH_9.6\r\n") as address, pytest.raises(ValueError, match="not HTTP"):
        model_list.fetch(address, "", 2)


def test_a_list_that_does_not_end_is_given_up() -> None:
    start = time.monotonic()
    with answering(HEAD, *[b" "] * 100, pause=0.1) as address, pytest.raises(TimeoutError):
        model_list.fetch(address, "", 0.3)
    assert time.monotonic() - start < 5


def test_a_list_of_more_than_a_megabyte_is_read() -> None:
    models = [{"id": f"model-{number}", "description": "x" * 2_000} for number in range(1_000)]
    with answering(HEAD, json.dumps({"data": models}).encode()) as address:
        assert len(model_list.ids(model_list.fetch(address, "", 5))) == 1_000


def test_an_odd_entry_costs_only_itself() -> None:
    body = json.dumps({"data": [{"id": None}, {"name": "x"}, "text", {"id": "good"}, 7]}).encode()
    assert model_list.ids(body) == ["good"]
    assert [model_list.ids(odd) for odd in (b"<html>", b"[]", b'{"data": 3}', b'{"data": null}', b"\xff")] == [[]] * 5
