"""A model server for tests of set-up and doctor: real HTTP on loopback, one model, one key."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-" + "k3y0" * 10


class ModelServer:
    """A model server that speaks chat completions; with `key`, only to whoever sends it."""

    def __init__(self, key: str = "") -> None:
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send("application/json", json.dumps({"data": [{"id": "little-model"}]}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append(body["model"])
                if key and self.headers.get("Authorization") != f"Bearer {key}":
                    self._send("application/json", '{"error": {"message": "bad key"}}', status=401)
                    return
                chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}]}
                end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
                said = "".join(f"data: {json.dumps(part)}\n\n" for part in (chunk, end))
                self._send("text/event-stream", f"{said}data: [DONE]\n\n")

            def _send(self, kind: str, text: str, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
