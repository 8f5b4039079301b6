# SPDX-License-Identifier: Apache-2.0
"""A request of QMF, with access to its fields.

Its user changes the virtual host through :mod:`headrace.gateway.security.authorized_host`, as
clients of 0-10 do, under the same permissions, quotas, and rules for names and arguments.
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
TEXT_BYTES_MAX = 1024

# The codes of refusals; other errors are a failed precondition.
CODES: dict[type[Exception], str] = {
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


def decode_texts(value: object) -> object:
    """Return a value in which bytes that are UTF-8 are text, as clients in C++ send text as bytes.

    Other bytes are unchanged. The keys of maps become text.
    """
    if isinstance(value, dict):
        return {str(key): decode_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_texts(item) for item in value]
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
        """``agent`` is the name of the agent that serves the request."""
        super().__init__(broker.context, vhost, connection, request)
        self.broker = broker
        self.agent = agent
        self.what: tuple[str, str] = ("", "")  # The class and the name of the method.
        self.key = ""  # The key of the object.

    def read_map(self, field: str) -> dict[str, object]:
        """Return a field that is a map; an empty one if the field is missing."""
        value = self.request.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(BAD_REQUEST, f"'{field}' is not a map")
        return value

    def check_text(self, field: str, value: object, bytes_max: int = TEXT_BYTES_MAX) -> str:
        """Return the value of a field if it is a short, printable string; otherwise refuse it."""
        if not isinstance(value, str) or not value.isprintable():
            self.refuse(BAD_REQUEST, f"'{field}' is missing or not a string")
        if len(value.encode("utf-8", "surrogatepass")) > bytes_max:
            self.refuse(BAD_REQUEST, f"'{field}' has more than {bytes_max} bytes")
        return str(value)

    def read_flag(self, values: dict[str, object], field: str, default: bool = False) -> bool:
        """Remove a boolean field and return it; Qpid's tools send several forms of booleans."""
        value = values.pop(field, default)
        flag = value.lower() if isinstance(value, str) else value
        if not isinstance(flag, str | int | bool) or flag not in YES | NO:
            self.refuse(BAD_REQUEST, f"'{field}' must be true or false")
        return flag in YES

    @contextmanager
    def host(self) -> Iterator[AuthorizedHost]:
        """Return the virtual host with the user's rights, by the rules of 0-10, for one change.

        Raises:
            RequestRefused: the change in the block was refused.
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
            raise RequestRefused(error_code(error), error.text) from None


def error_code(error: ModelError) -> str:
    """Return the code of an answer for a refusal of the model."""
    codes = (CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    return next(codes, "precondition")
