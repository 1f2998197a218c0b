#!/usr/bin/env bash
# A server and a client on a unix socket in the workspace, and on one in the folder for temporary files.
# needs: python3
set -eu
timeout 60 python3 - <<'PY'
import os
import socket
import tempfile
import threading

with tempfile.TemporaryDirectory() as temporary:
    for path in ("s.sock", os.path.join(temporary, "s.sock")):
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()

        def answer():
            one, _ = server.accept()
            one.sendall(one.recv(10).upper())
            one.close()

        thread = threading.Thread(target=answer)
        thread.start()
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.sendall(b"hello")
        assert client.recv(10) == b"HELLO"
        thread.join()
        client.close()
        server.close()
        os.unlink(path)
a, b = socket.socketpair()
a.sendall(b"x")
assert b.recv(1) == b"x"
socket.send_fds(a, [b"f"], [0])
assert len(socket.recv_fds(b, 1, 1)[1]) == 1
PY
echo JOB OK
