# SPDX-License-Identifier: Apache-2.0
"""A client of the management socket, as the console's process is one."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from headrace.server.management.socket import short_address
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
        request = {"do": do, **fields}
        if self.ticket is not None:
            request = {"as": self.ticket, "peer": PEER, "agent": "pytest", **request}
        self.end.sendall(json.dumps(request).encode() + b"\n")

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
