"""A write whose server's machine is lost and comes back, in a network of its own. Argument 1: the server's address.

The server is a relay on TCP here. It is killed while the network is away, so nobody says that its connections are gone.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from hermes_state.session_db import SessionDB
from hermes_state.storage import postgres

_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # of <linux/sockios.h> and <linux/if.h>
RELAY = """
import socket, struct, sys, threading
def pass_on(a, b):
    while data := a.recv(65536):
        b.sendall(data)
here = socket.create_server(("127.0.0.1", int(sys.argv[2])))
print(here.getsockname()[1], flush=True)
while True:
    client, _ = here.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    for pair in ((client, server), (server, client)):
        threading.Thread(target=pass_on, args=pair, daemon=True).start()
"""


def network(*, up: bool) -> None:
    with socket.socket() as any_one:
        name, flags = struct.unpack("16sH", fcntl.ioctl(any_one, _FLAGS, struct.pack("16sH14x", b"lo", 0))[:18])
        fcntl.ioctl(any_one, _SET_FLAGS, struct.pack("16sH14x", name, flags | _UP if up else flags & ~_UP))


def relay(to: dict[str, Any], port: int = 0) -> tuple[subprocess.Popen[str], int]:
    path = f"{to['host']}/.s.PGSQL.{to.get('port', 5432)}"
    started = subprocess.Popen([sys.executable, "-c", RELAY, path, str(port)], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    return started, int(started.stdout.readline())


def main(address: str) -> None:
    network(up=True)
    to = conninfo_to_dict(address)
    server, port = relay(to)
    postgres._NETWORK.update(keepalives_idle="1", keepalives_interval="1", keepalives_count="2")  # not half a minute
    user = f"{to['user']}:{to['password']}" if "password" in to else to["user"]
    db = SessionDB(f"postgresql://{user}@127.0.0.1:{port}/{to['dbname']}")
    db.create_session("s", "cli")
    tries: list[int] = []

    def write(conn: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            conn.rows("SELECT pg_sleep(2)")  # the answer comes when nobody can hear it any more
        conn.run("UPDATE sessions SET title = 'kept' WHERE id = 's'")

    writing = threading.Thread(target=db.engine.write, args=(write,), daemon=True)
    writing.start()
    asleep = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    with psycopg.connect(address, autocommit=True) as looking:
        while not looking.execute(asleep).fetchone():
            time.sleep(0.01)
    time.sleep(0.3)  # the kernel acknowledges what it received within 0.04 s; then the client only waits
    network(up=False)
    server.kill()
    server.wait()
    network(up=True)
    server, _ = relay(to, port)
    writing.join(60)
    print("still waiting" if writing.is_alive() else db.get_session("s")["title"], flush=True)
    server.kill()


if __name__ == "__main__":
    main(sys.argv[1])
