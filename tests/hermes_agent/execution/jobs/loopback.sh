#!/usr/bin/env bash
# TCP and UDP over 127.0.0.1, localhost and, where there is one, ::1.
# needs: python3 localhost
set -eu
timeout 60 python3 - <<'PY'
import socket
import threading

hosts = [("127.0.0.1", socket.AF_INET), ("localhost", socket.AF_INET)]
try:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
    hosts.append(("::1", socket.AF_INET6))
except OSError:
    print("no ::1 here")
for host, family in hosts:
    with socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"tcp"))
        thread.start()
        with socket.create_connection(server.getsockname()[:2], timeout=10) as client:
            assert client.recv(3) == b"tcp"
        thread.join()
    with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as two:
        one.bind((host, 0))
        one.settimeout(10)
        two.sendto(b"udp", one.getsockname())
        assert one.recv(10) == b"udp"
    print(host)
PY
echo JOB OK
