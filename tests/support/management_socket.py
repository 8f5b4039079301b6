# SPDX-License-Identifier: Apache-2.0
"""A client of the management socket, as the console's process is one."""

from __future__ import annotations

import base64
import json
import socket
from array import array
from typing import TYPE_CHECKING, Any

from headrace.management_socket import short_address
from headrace.server.management.sampling.rows import ROW_FIELDS
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

PEER = "127.0.0.1:4711"


class OperationRefused(Exception):
    """An answer with an error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class ManagementClient:
    """One connection to the socket; with a ticket it acts as a user."""

    def __init__(self, path: Path, ticket: str | None = None) -> None:
        self.path = path
        self.ticket = ticket
        self.users: list[ManagementClient] = []  # Those who logged in here.
        self.end = socket.socket(socket.AF_UNIX)
        self.end.settimeout(PATIENCE_S)
        with short_address(path) as address:
            self.end.connect(address)
        self.answers = self.end.makefile("rb")

    def close(self) -> None:
        """Disconnect, and those who logged in here."""
        for user in self.users:
            user.close()
        self.answers.close()
        self.end.close()

    def send(self, do: str, **fields: object) -> None:
        """Send a request."""
        self.end.sendall(self.request(do, **fields))

    def request(self, do: str, **fields: object) -> bytes:
        """Return the line of a request."""
        request = {"do": do, **fields}
        if self.ticket is not None:
            request = {"as": self.ticket, "peer": PEER, "agent": "pytest", **request}
        return json.dumps(request).encode() + b"\n"

    def line(self) -> dict[str, Any]:
        """Return the next line of an answer."""
        answer: dict[str, Any] = json.loads(self.answers.readline())
        if "error" in answer:
            raise OperationRefused(answer["code"], answer["error"])
        return answer

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Run an operation; return its last line."""
        return self.listed(do, **fields)[1]

    def items(self, do: str, **fields: object) -> list[dict[str, Any]]:
        """Run an operation; return its items."""
        return self.listed(do, **fields)[0]

    def listed(self, do: str, **fields: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Run an operation; return its items and its last line."""
        self.send(do, **fields)
        items = []
        while "done" not in (line := self.line()):
            if "item" in line:
                items.append(line["item"])
        return items, line["done"]

    def login(self, username: str, password: str, **fields: object) -> ManagementClient:
        """Log in; return a connection that acts as the user."""
        fields = {"peer": PEER, "protocol": "http", **fields}
        done = self.ask("login", username=username, password=password, **fields)
        user = ManagementClient(self.path, done["ticket"])
        self.users.append(user)
        return user


def refusal(client: ManagementClient, do: str, **fields: object) -> str:
    """Return the code with which an operation is refused; empty when it is not."""
    try:
        client.ask(do, **fields)
    except OperationRefused as error:
        return error.code
    return ""


class Mirror:
    """The objects as a client that samples again and again knows them."""

    def __init__(self, client: ManagementClient, *kinds: str) -> None:
        self.client = client
        self.kinds = list(kinds)
        self.since = 0
        self.static: dict[str, dict[int, dict[str, Any]]] = {}
        self.rows: dict[str, dict[int, dict[str, int]]] = {}
        self.changed: set[tuple[str, str]] = set()  # Kind and name, the last time,
        self.gone: set[tuple[str, str]] = set()
        self.done: dict[str, Any] = {}

    def look(self) -> Mirror:
        fields = {"kinds": self.kinds} if self.kinds else {}
        items, self.done = self.client.listed("sample", since=self.since, **fields)
        if self.done["everything"]:
            self.static, self.rows = {}, {}
        self.changed, self.gone = set(), set()
        for item in items:
            self._take(item)
        self.since = self.done["epoch"]
        return self

    def _take(self, item: dict[str, Any]) -> None:
        kind = item["kind"]
        static, rows = self.static.setdefault(kind, {}), self.rows.setdefault(kind, {})
        for number, *values in item["new"]:
            assert tuple(item["fields"]) == ROW_FIELDS[kind].static
            static[number] = dict(zip(item["fields"], values, strict=True))
        columns = {name: unpacked(text) for name, text in item["columns"].items()}
        for at, number in enumerate(unpacked(item["ids"])):
            rows[number] = {name: column[at] for name, column in columns.items()}
            self.changed.add((kind, str(static[number].get("name"))))
        for number in item["gone"]:
            self.gone.add((kind, str(static.pop(number).get("name"))))
            del rows[number]

    def named(self, kind: str) -> dict[str, dict[str, int]]:
        """Return the numbers of each object of a kind, by name."""
        static = self.static.get(kind, {})
        return {str(static[n].get("name")): row for n, row in self.rows.get(kind, {}).items()}

    def number(self, kind: str, name: str) -> int:
        """Return the number of an object."""
        (found,) = [n for n, one in self.static[kind].items() if one["name"] == name]
        return found


def unpacked(text: str) -> list[int]:
    """Return the numbers of a column; these tests run on little-endian machines."""
    return array("q", base64.b64decode(text)).tolist()
