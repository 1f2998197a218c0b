"""A model server for tests of set-up and doctor: real HTTP on loopback, a few models, one key."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-" + "k3y0" * 10


class ModelServer:
    """A model server that speaks chat completions; with `key`, only to whoever sends it.

    `lists=False`: it has no `/models`. `moved`: it sends everybody to that address instead.
    """

    def __init__(
        self, key: str = "", *, models: Sequence[str] = ("little-model",), lists: bool = True, moved: str = ""
    ) -> None:
        self.asked: list[str] = []
        self.shown: list[str] = []
        """What was sent as `Authorization`, by request."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.shown.append(self.headers.get("Authorization", ""))
                if moved:
                    self.send_response(302)
                    self.send_header("Location", f"{moved}{self.path}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif self.path != "/v1/models" or not lists:
                    self._send("application/json", "{}", status=404)
                elif self._is_stranger():
                    self._send("application/json", '{"error": {"message": "bad key"}}', status=401)
                else:
                    self._send("application/json", json.dumps({"data": [{"id": name} for name in models]}))

            def _is_stranger(self) -> bool:
                return bool(key) and self.headers.get("Authorization") != f"Bearer {key}"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append(body["model"])
                server.shown.append(self.headers.get("Authorization", ""))
                if self._is_stranger():
                    self._send("application/json", '{"error": {"message": "bad key"}}', status=401)
                    return
                if lists and len(models) > 1 and body["model"] not in models:
                    self._send("application/json", '{"error": {"code": "model_not_found"}}', status=404)
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
