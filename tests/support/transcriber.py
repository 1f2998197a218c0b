"""A server with OpenAI's `POST /v1/audio/transcriptions`, for tests: what it is told to hear is what it answers.

It is as strict as the documentation: a multipart body with `file` and `model`, `response_format` json, and the key as a
bearer token if it has one.
"""

from __future__ import annotations

import json
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast


class FakeTranscriber:
    def __init__(self, text: str = "hello", *, key: str = "", status: int = 200, delay: float = 0.0) -> None:
        self.text, self.key, self.status = text, key, status
        self.recordings: list[bytes] = []
        self.fields: list[dict[str, str]] = []
        self.released = threading.Event()
        """Set to end the `delay` early."""
        fake = self

        class TranscriberHandler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                """Nothing: tests look at `recordings`."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = fake._answer(self.path, dict(self.headers.items()), body)
                fake.released.wait(delay)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), TranscriberHandler)
        self._server.daemon_threads = True

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        if path != "/v1/audio/transcriptions":
            return 404, _error(f"Unknown request URL: POST {path}")
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return 401, _error("Incorrect API key provided")
        head = f"Content-Type: {headers.get('Content-Type', '')}\r\n\r\n".encode()
        message = BytesParser(policy=HTTP).parsebytes(head + body)
        parts = {str(part.get_param("name", header="content-disposition")): part for part in message.iter_parts()}
        if "file" not in parts or "model" not in parts or not parts["file"].get_filename():
            return 400, _error("file and model are required")
        self.recordings.append(cast(bytes, parts.pop("file").get_payload(decode=True)))
        fields = {name: cast(bytes, part.get_payload(decode=True)).decode() for name, part in parts.items()}
        self.fields.append(fields)
        if fields.get("response_format", "json") != "json":
            return 400, _error("this server answers json alone")
        return self.status, {"text": self.text} if self.status == 200 else _error("it failed")


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}
