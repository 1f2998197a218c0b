#!/usr/bin/env bash
# A test suite that talks to an HTTP server on the loopback. The packages of pytest may lie in .packages.
# needs: python3 pytest
set -eu
export PYTHONPATH="$PWD/.packages${PYTHONPATH:+:$PYTHONPATH}"
mkdir project; cd project
cat > test_server.py <<'PY'
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello " + self.path.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_answer(address, name, tmp_path):
    body = urllib.request.urlopen(f"{address}/{name}").read()
    (tmp_path / "body").write_bytes(body)
    assert body == f"hello /{name}".encode()
PY
python3 -m pytest -q test_server.py | tee out.txt
grep -q '3 passed' out.txt
echo JOB OK
