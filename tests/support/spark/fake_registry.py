# SPDX-License-Identifier: Apache-2.0
"""A schema registry in this process: the paths of Confluent's API, and faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, bytes]


class FakeRegistry:
    """Schemas by id and by subject. `asked` are the requests, `faults` the next answers."""

    def __init__(self) -> None:
        self.url = ""
        self.ids: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.logins: set[str | None] = set()
        self.faults: list[Answer] = []

    def add(self, subject: str, schema: object, kind: str = "AVRO", **references: str) -> int:
        """Register a schema; `references` are names of types, and their subjects."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry: dict[str, Any] = {"schemaType": kind, "schema": text}
        entry["references"] = [
            {"name": name, "subject": of, "version": 1} for name, of in references.items()
        ]
        return self._add(subject, entry)

    def _add(self, subject: str, entry: dict[str, Any]) -> int:
        known = [number for number, one in self.ids.items() if one == entry]
        number = known[0] if known else 1 + len(self.ids)
        self.ids[number] = entry
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """The answer to a request."""
        self.asked.append(f"{method} {path}")
        if self.faults:
            return self.faults.pop(0)
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        found: Any = None
        if parts[:2] == ["schemas", "ids"]:
            found = self.ids.get(int(parts[2]))
        elif parts[0] == "subjects" and method == "POST" and len(parts) == 2:
            known = [self.ids[number] for number in self.subjects.get(parts[1], [])]
            found = [one for one in known if one["schema"] == json.loads(body)["schema"]]
            found = {"id": self._add(parts[1], found[0]), "version": 1} if found else None
        elif parts[0] == "subjects" and method == "POST":
            given = json.loads(body)
            entry = {"schemaType": given.get("schemaType", "AVRO"), "schema": given["schema"]}
            entry["references"] = given.get("references", [])
            number = self._add(parts[1], entry)
            found = {"id": number, "subject": parts[1], "version": 1, **entry}
        elif parts[0] == "subjects" and len(parts) == 4:
            versions = self.subjects.get(parts[1], [])
            at = len(versions) if parts[3] == "latest" else int(parts[3])
            if 0 < at <= len(versions):
                number = versions[at - 1]
                found = {"id": number, "subject": parts[1], "version": at, **self.ids[number]}
        if found is None:
            return 404, json.dumps({"error_code": 40403, "message": "not found"}).encode()
        return 200, json.dumps(found).encode()


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """A registry that serves on the loopback address."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            registry.logins.add(self.headers["Authorization"])
            size = int(self.headers["Content-Length"] or 0)
            status, octets = registry.answer(self.command, self.path, self.rfile.read(size))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(octets)))
            if status == 302:
                self.send_header("Location", registry.url)
            self.end_headers()
            self.wfile.write(octets)

        do_GET = do_POST = _serve

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
