# SPDX-License-Identifier: Apache-2.0
"""Errors of the management socket; :mod:`headrace.console.http_errors` makes answers of them."""

from __future__ import annotations

BUSY = "busy"  # The code of a login that the console refuses: too many of them wait.


class OperationRefused(Exception):
    """The broker refused an operation.

    ``code`` is bad-request, not-found, refused, precondition, conflict, limit or internal, or
    ``BUSY``.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class BrokerGone(Exception):
    """The broker does not answer on its management socket; the text is the reason."""
