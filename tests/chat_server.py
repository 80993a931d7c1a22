"""A small HTTP server that answers as OpenAI's chat completions do; what it says is a function of the
request."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, stop="stop", tokens=5):
    """(status, body) of one reply."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": stop}
    return 200, {"object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": tokens}}


class Server(ThreadingHTTPServer):
    """Says nothing of clients that hang up while they are answered, as those do that end with an error."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(answer, models=("tiny",)):
    """(address, requests): ``answer(request body, count of earlier requests)`` gives (status, body[,
    headers]). ``models``: those that GET lists, or its text."""
    seen: list[dict] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if isinstance(models, str):
                self.reply(200, models)
                return
            self.reply(
                200, {"data": [entry if isinstance(entry, dict) else {"id": entry} for entry in models]}
            )

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            if len(body := self.rfile.read(length)) < length:
                return  # the client hung up
            request = json.loads(body)
            with lock:
                before = len(seen)
                seen.append(request | {"path": self.path, "authorization": self.headers.get("Authorization")})
            self.reply(*answer(request, before))

        def reply(self, status, body, headers=()):
            text = body if isinstance(body, str | bytes) else json.dumps(body)
            content = text.encode() if isinstance(text, str) else text
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
