# SPDX-License-Identifier: Apache-2.0
"""A catalog of Iceberg's REST specification for tests, which can lose the answer of a commit.

Its tables are those of pyiceberg's SQL catalog, its requests and answers are pyiceberg's models of
the specification. A server of its own shows what happens when an answer is lost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder

TOKEN = "a-secret-of-the-catalog"
STATUS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalog:
    """The server; `lost_answers` says how many commits to do and answer with an error."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lost_answers = 0
        self.refuse = False  # Commits, without doing them.
        self.lock = threading.Lock()
        self.catalog = load_catalog(
            "rest", type="sql", uri=f"sqlite:///{home / 'rest.db'}", warehouse=home.as_uri()
        )
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Keep quiet."""

            def do_GET(self) -> None:
                self._answer("GET")

            def do_HEAD(self) -> None:
                self._answer("HEAD")

            def do_POST(self) -> None:
                self._answer("POST")

            def do_DELETE(self) -> None:
                self._answer("DELETE")

            def _answer(self, method: str) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                given = json.loads(self.rfile.read(size)) if size else {}
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self._say(401, _error(401, "NotAuthorizedException", f"not {TOKEN[:0]}you"))
                    return
                is_commit = method == "POST" and self.path.split("/")[-2] == "tables"
                if is_commit and catalog.refuse:
                    self._say(500, _error(500, "InternalServerError", "out of order"))
                    return
                path = [unquote(one) for one in self.path.partition("?")[0].split("/")[2:]]
                try:
                    with catalog.lock:
                        said = catalog.do(method, path, given)
                except tuple(STATUS) as error:
                    code = STATUS[type(error)]
                    self._say(code, _error(code, type(error).__name__, str(error)))
                    return
                if is_commit and catalog.lost_answers:
                    catalog.lost_answers -= 1
                    self._say(503, _error(503, "ServiceUnavailableException", "lost"))
                    return
                self._say(200, said)

            def _say(self, code: int, said: dict[str, Any]) -> None:
                data = json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def running(self) -> Iterator[RestCatalog]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()
            self.catalog.close()

    def do(self, method: str, path: list[str], given: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        if path == ["config"]:
            return {"defaults": {}, "overrides": {}}
        assert path[0] == "namespaces", path
        if len(path) == 1:
            assert method == "POST", method
            self.catalog.create_namespace(tuple(given["namespace"]))
            return {"namespace": given["namespace"], "properties": {}}
        space = tuple(path[1].split("\x1f"))
        if len(path) == 2:
            if not self.catalog.namespace_exists(space):
                raise NoSuchNamespaceError(".".join(space))
            return {"namespace": list(space), "properties": {}}
        if len(path) == 3:
            return self._create(space, given)
        name = (*space, path[3])
        if method == "DELETE":
            self.catalog.drop_table(name)
            return {}
        if method == "POST":
            return self._commit(name, CommitTableRequest.model_validate(given))
        return _loaded(self.catalog.load_table(name))

    def _create(self, space: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
        name = (*space, given["name"])
        schema = Schema.model_validate(given["schema"])
        spec = PartitionSpec.model_validate(given["partition-spec"])
        order = SortOrder.model_validate(given["write-order"])
        properties = given.get("properties") or {}
        if self.catalog.table_exists(name):
            raise TableAlreadyExistsError(".".join(name))
        if not given.get("stage-create"):
            made = self.catalog.create_table(
                name, schema, partition_spec=spec, sort_order=order, properties=properties
            )
            return _loaded(made)
        where = f"{self.home.as_uri()}/{'/'.join(name)}"
        metadata = new_table_metadata(schema, spec, order, where, properties)
        return {"metadata": json.loads(metadata.model_dump_json()), "config": {}}

    def _commit(self, name: tuple[str, ...], request: CommitTableRequest) -> dict[str, Any]:
        try:
            table = self.catalog.load_table(name)
        except NoSuchTableError:
            # The SQL catalog needs only the name of one that is to be made.
            table = Table(name, None, "", None, self.catalog)  # type: ignore[arg-type]
        done = self.catalog.commit_table(table, request.requirements, request.updates)
        return json.loads(done.model_dump_json(by_alias=True))  # type: ignore[no-any-return]


def _loaded(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


def _error(code: int, kind: str, text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "code": code}}
