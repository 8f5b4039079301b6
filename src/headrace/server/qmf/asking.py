# SPDX-License-Identifier: Apache-2.0
"""One request by QMF, and who asks.

Who asks stands in the place of a session for the commands of 0-10 that do the work
(:mod:`headrace.gateway.v0_10`): so rights, quotas, names and arguments are judged as for anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.requests.requests import Call, Refused
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.server.qmf.agent import Agent

BAD_REQUEST = "bad-request"
TEXT_OCTETS_MAX = 1024

# What the codes of a failed command are among those of requests.
CODES = {
    ExecutionCode.UNAUTHORIZED_ACCESS: "refused",
    ExecutionCode.RESOURCE_LOCKED: "refused",
    ExecutionCode.NOT_FOUND: "not-found",
    ExecutionCode.NOT_IMPLEMENTED: "not-implemented",
    ExecutionCode.INVALID_ARGUMENT: BAD_REQUEST,
    ExecutionCode.ILLEGAL_ARGUMENT: BAD_REQUEST,
    ExecutionCode.RESOURCE_LIMIT_EXCEEDED: "limit",
}
YES, NO = frozenset((True, 1, "1", "true", "yes")), frozenset((False, 0, "0", "false", "no"))


def with_texts(value: Any) -> Any:
    """Return a value with texts in place of octets that are such: clients in C++ send those."""
    if isinstance(value, dict):
        return {str(key): with_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_texts(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


class Asking(Call):
    """A request, and who asks."""

    def __init__(self, agent: Agent, connection: Any, request: dict[str, Any]) -> None:
        super().__init__(agent.context, agent.vhost, connection, request)
        self.agent = agent
        self.what: tuple[str, str] = ("", "")  # Class and method,
        self.key = ""  # and of which object.
        shared = agent.broker.shared_0_10
        self.session = InPlaceOfSession(shared, agent.vhost, connection)

    def inner(self, field: str) -> dict[str, Any]:
        """Return a field that is a map; empty when it is missing."""
        value = self.request.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(BAD_REQUEST, f"'{field}' is no map")
        return value

    def checked(self, field: str, value: Any, octets_max: int = TEXT_OCTETS_MAX) -> str:
        """Return a value if it is a text that may be repeated in others."""
        if not isinstance(value, str) or not value.isprintable():
            self.refuse(BAD_REQUEST, f"'{field}' is missing, or no text")
        if len(value.encode("utf-8", "surrogatepass")) > octets_max:
            self.refuse(BAD_REQUEST, f"'{field}' has more than {octets_max} octets")
        return str(value)

    def yes(self, values: dict[str, Any], field: str, default: bool = False) -> bool:
        """Take a field out that is true or false, in one of the forms that Qpid's tools send."""
        value = values.pop(field, default)
        said = value.lower() if isinstance(value, str) else value
        if not isinstance(said, str | int | bool) or said not in YES | NO:
            self.refuse(BAD_REQUEST, f"'{field}' is neither true nor false")
        return said in YES

    def run(self, handler: Any, command: Any) -> None:
        """Do what a command of 0-10 does.

        Raises:
            Refused: it cannot be done.
        """
        try:
            handler(self.session, command, b"", ())
        except ExecutionError as error:
            raise Refused(CODES.get(error.error_code, "precondition"), error.text) from None


class InPlaceOfSession:
    """What the commands of 0-10 want to know of a session."""

    def __init__(self, shared: Any, vhost: Any, connection: Any) -> None:
        self.context = shared
        self.vhost = vhost
        self.connection = connection
        self.user = connection.user
        self.counters = vhost.counters

    def check_access(self, permission: str, kind: str, name: str) -> None:
        """Refuse what the user has no permission for."""
        self.context.access.check(self.user, self.vhost.name, permission, kind, name)

    def check_topic(self, permission: str, exchange: str, routing_key: str) -> None:
        """Refuse a topic that the user may not publish to or bind."""
        self.context.access.check_topic(self.user, self.vhost, permission, exchange, routing_key)

    def check_elsewhere(self, exchange: str, routing_key: Any = None, *, letters: bool) -> None:
        """Refuse to let messages go on to where the user may not write."""
        access = self.context.access
        access.check_elsewhere(self.user, self.vhost, exchange, routing_key, letters=letters)

    def later(self) -> bool:
        """Every answer waits for the disk."""
        return False
