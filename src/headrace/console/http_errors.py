# SPDX-License-Identifier: Apache-2.0
"""Errors of HTTP requests, with the fields of RabbitMQ's API: ``{"error": …, "reason": …}``.

The 401 of a login is in :mod:`.auth.basic_bearer` and :mod:`.auth.broker_login`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.broker.errors import BUSY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.broker.errors import BrokerGone, OperationRefused

WORDS = {  # The field ``error``, by status.
    303: "see_other",
    400: "bad_request",
    401: "not_authorised",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    411: "length_required",
    412: "precondition_failed",
    417: "expectation_failed",
    421: "misdirected_request",
    429: "too_many_requests",
    431: "request_header_fields_too_large",
    500: "internal_server_error",
    503: "service_unavailable",
}
NOT_FOUND = "not-found"  # The broker's code of an object that does not exist.
STATUSES = {  # HTTP statuses by the broker's code.
    "bad-request": 400,
    NOT_FOUND: 404,
    "refused": 401,
    "precondition": 400,
    "conflict": 400,
    "limit": 400,
    "internal": 500,
}
RETRY_AFTER = {"Retry-After": "5"}  # Seconds after which a client may repeat a refused request.


class HttpError(Exception):
    """The answer to a request that fails."""

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        error: str = "",
        headers: Mapping[str, str] | None = None,
        closes: bool = False,
        retries: bool = False,
    ) -> None:
        """``closes``: the server closes the connection after the answer, with the body unread.

        ``retries``: the page of the error reloads itself until the broker responds.
        """
        super().__init__(reason)
        self.status = status
        self.error = error or WORDS.get(status, "error")
        self.reason = reason
        self.headers = {} if headers is None else dict(headers)
        self.closes = closes
        self.retries = retries


def not_found(reason: str = "Object Not Found") -> HttpError:
    """Return the error for an object that does not exist, or that the user does not see."""
    return HttpError(404, reason)


def bad_request(reason: str, error: str = "") -> HttpError:
    """Return the error for a malformed request."""
    return HttpError(400, reason, error=error)


def too_many(reason: str, *, closes: bool = False) -> HttpError:
    """Return the error for a request beyond a limit of requests at a time."""
    return HttpError(429, reason, headers=RETRY_AFTER, closes=closes)


def refusal_error(error: HttpError | OperationRefused) -> HttpError:
    """Return the error for a request that a handler or the broker refused."""
    if isinstance(error, HttpError):
        return error
    if error.code == BUSY:
        return too_many(error.text)
    return HttpError(STATUSES.get(error.code, 500), error.text)


def broker_gone_error(error: BrokerGone, *, retries: bool) -> HttpError:
    """Return the error for a request while the broker restarts or does not run."""
    return HttpError(503, str(error), headers={"Retry-After": "2"}, retries=retries)
