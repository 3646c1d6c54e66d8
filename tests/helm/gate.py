"""A gate before the API server: lets through what a service account may do, and remembers what was asked."""

import contextlib
import http.client
import json
import socketserver
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from tests.helm.chart import Object
from tests.helm.rbac import Access, allows, needs

_HOP: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "host"})


class Gate:
    """Serves an API server's requests in its place, on ``url``."""

    def __init__(self, server: str, rules: Sequence[tuple[str, Object]]) -> None:
        self._server: Final = server
        self._rules: Final = rules
        self._lock: Final = threading.Lock()
        self._asked: Final[set[Access]] = set()
        self._denied: Final[set[Access]] = set()
        self.url = ""

    @property
    def asked(self) -> frozenset[Access]:
        """Everything that was asked for so far."""
        with self._lock:
            return frozenset(self._asked)

    @property
    def denied(self) -> frozenset[Access]:
        """What was turned away."""
        with self._lock:
            return frozenset(self._denied)

    def kinds(self) -> set[tuple[str, str, str]]:
        """(verb, group, resource) of everything that was asked for."""
        return {access.kind for access in self.asked if not access.path}

    def admits(self, method: str, target: str) -> bool:
        """Notes the request and says whether it may pass."""
        access = needs(method, target)
        admitted = allows(self._rules, access)
        with self._lock:
            self._asked.add(access)
            if not admitted:
                self._denied.add(access)
        return admitted

    @contextlib.contextmanager
    def open(self) -> Iterator["Gate"]:
        """Listens. On the way out it waits for answers under way: end the API server before."""
        gate, address = self, urlsplit(self._server)

        class Handler(_Handler):
            def handle_request(self) -> None:
                if gate.admits(self.command, self.path):
                    self.forward(address.hostname or "", address.port or 80)
                else:
                    self.refuse(403, "Forbidden", f"forbidden: {needs(self.command, self.path)}")

        server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="gate")
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are none of our business."""


class _Handler(BaseHTTPRequestHandler):
    server: socketserver.BaseServer

    def handle_request(self) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.handle_request
        raise AttributeError(name)

    def refuse(self, code: int, reason: str, message: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        body = json.dumps({**status, "reason": reason, "message": message}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def forward(self, host: str, port: int) -> None:
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        with contextlib.closing(http.client.HTTPConnection(host, port)) as upstream:
            upstream.request(self.command, self.path, body, headers)
            with upstream.getresponse() as answer:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                self.end_headers()
                while piece := answer.read1():
                    self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Nothing: what matters is in ``asked``."""
