# SPDX-License-Identifier: Apache-2.0
"""One request of QMF, and its user.

The user changes the virtual host through :mod:`headrace.gateway.security.authorized_host`, as the
clients of 0-10 do: the same permissions, quotas and rules for names and arguments hold.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.gateway.requests.requests import RequestCall, RequestRefused
from headrace.gateway.security.authorized_host import AuthorizedHost, Dialect
from headrace.model.errors import (
    AccessRefused,
    InvalidArgument,
    LimitReached,
    ModelError,
    NotFound,
    NotImplementedHere,
    NotUnderstood,
    ResourceError,
    ResourceLocked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.gateway.security.client_connection import ClientConnection
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.managed_broker import ManagedBroker

BAD_REQUEST = "bad-request"
TEXT_OCTETS_MAX = 1024

CODES: dict[type[Exception], str] = {  # Other errors: a failed precondition.
    AccessRefused: "refused",
    ResourceLocked: "refused",
    NotFound: "not-found",
    NotImplementedHere: "not-implemented",
    NotUnderstood: "not-implemented",
    InvalidArgument: BAD_REQUEST,
    LimitReached: "limit",
    ResourceError: "limit",
}
YES, NO = frozenset((True, 1, "1", "true", "yes")), frozenset((False, 0, "0", "false", "no"))


def with_texts(value: object) -> object:
    """Decode bytes that are UTF-8 in a value and its items: clients in C++ send texts as bytes.

    Bytes that are not UTF-8 stay bytes. Keys become texts.
    """
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


class QmfRequest(RequestCall):
    """A request of a QMF client, run with the permissions of its connection's user."""

    def __init__(
        self,
        broker: ManagedBroker,
        vhost: VirtualHost,
        connection: ClientConnection,
        request: dict[str, object],
        *,
        agent: str,
    ) -> None:
        """``agent`` is the name of the agent that serves it."""
        super().__init__(broker.context, vhost, connection, request)
        self.broker = broker
        self.agent = agent
        self.what: tuple[str, str] = ("", "")  # Class and method.
        self.key = ""  # The key of the object.

    def read_map(self, field: str) -> dict[str, object]:
        """Return a field that is a map; empty when it is missing."""
        value = self.request.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(BAD_REQUEST, f"'{field}' is not a map")
        return value

    def check_text(self, field: str, value: object, octets_max: int = TEXT_OCTETS_MAX) -> str:
        """Return a value if it is a text that may be repeated in others."""
        if not isinstance(value, str) or not value.isprintable():
            self.refuse(BAD_REQUEST, f"'{field}' is missing or not a string")
        if len(value.encode("utf-8", "surrogatepass")) > octets_max:
            self.refuse(BAD_REQUEST, f"'{field}' has more than {octets_max} bytes")
        return str(value)

    def read_flag(self, values: dict[str, object], field: str, default: bool = False) -> bool:
        """Remove a boolean field and return it; Qpid's tools send it in several forms."""
        value = values.pop(field, default)
        answer = value.lower() if isinstance(value, str) else value
        if not isinstance(answer, str | int | bool) or answer not in YES | NO:
            self.refuse(BAD_REQUEST, f"'{field}' must be true or false")
        return answer in YES

    @contextmanager
    def host(self) -> Iterator[AuthorizedHost]:
        """Return the virtual host as the user may change it, by the rules of 0-10.

        Raises:
            RequestRefused: the change cannot be done.
        """
        shared = self.broker.shared_0_10
        host = AuthorizedHost(
            self.context,
            self.vhost,
            self.user,
            self,
            Dialect.V0_10,
            strict=shared.strict_arguments,
        )
        try:
            yield host
        except ModelError as error:
            raise RequestRefused(code_of(error), error.text) from None


def code_of(error: ModelError) -> str:
    """Return the code that an answer has for a refusal of the model."""
    codes = (CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    return next(codes, "precondition")
