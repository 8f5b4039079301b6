# SPDX-License-Identifier: Apache-2.0
"""Errors of AMQP 0-10 by scope: the connection, the attachment of a session, or the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spec.reply_0_10 import DetachCode

if TYPE_CHECKING:
    from headrace.spec.reply_0_10 import CloseCode, ExecutionCode

CLOSE_TEXT_BYTES_MAX = 255  # connection.close reply-text is a str8.
DESCRIPTION_BYTES_MAX = 1024  # execution.exception description: a str16, but for people to read.


def _cut(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


class CloseError(Exception):
    """The connection must close; `close_code` and `text` go out with connection.close."""

    def __init__(self, close_code: CloseCode, text: str) -> None:
        super().__init__(close_code, text)  # Unchanged arguments, so that it can be pickled.
        self.close_code = close_code
        self.text = text

    @property
    def reply_text(self) -> str:
        """The reply text of connection.close: at most 255 bytes."""
        return _cut(self.text, CLOSE_TEXT_BYTES_MAX)

    def __str__(self) -> str:
        return f"{int(self.close_code)} {self.reply_text}"


class DetachError(Exception):
    """The session must be detached from its channel with `detach_code`."""

    def __init__(self, detach_code: DetachCode, text: str) -> None:
        super().__init__(detach_code, text)
        self.detach_code = detach_code
        self.text = text  # For the log: session.detached has no text.

    def __str__(self) -> str:
        return f"{int(self.detach_code)} {self.text}"


class ExecutionError(Exception):
    """A command failed: an execution.exception, after which the session ends.

    `field_index` is the index of the field that caused the error, from 0; None if there is none.
    """

    def __init__(
        self, error_code: ExecutionCode, text: str, field_index: int | None = None
    ) -> None:
        super().__init__(error_code, text, field_index)
        self.error_code = error_code
        self.text = text
        self.field_index = field_index

    @property
    def description(self) -> str:
        """The description of execution.exception: at most 1024 bytes."""
        return _cut(self.text, DESCRIPTION_BYTES_MAX)

    def __str__(self) -> str:
        return f"{int(self.error_code)} {self.description}"


def unknown_ids(text: str) -> DetachError:
    """Return the error for command ids that do not exist."""
    return DetachError(DetachCode.UNKNOWN_IDS, text)
