# SPDX-License-Identifier: Apache-2.0
"""AmqpError: an error of either peer that a close method reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.spec.reply import ReplyCode, Scope
    from headrace.spec.tables import MethodId

REPLY_TEXT_BYTES_MAX = 255  # A reply text is a short string.


class AmqpError(Exception):
    """An error of the protocol: its code, its text, the method that failed, and its scope."""

    def __init__(
        self,
        code: ReplyCode,
        text: str,
        method: MethodId = (0, 0),
        scope: Scope | None = None,
    ) -> None:
        super().__init__(
            code, text, method, scope
        )  # Unchanged arguments, so that it can be pickled.
        self.code = code
        self.text = text
        self.method = method  # (0, 0) if no method failed.
        self.scope = code.scope if scope is None else scope

    @property
    def reply_text(self) -> str:
        """The reply text of the close method: at most 255 bytes."""
        text = f"{self.code.name} - {self.text}"
        raw = text.encode("utf-8", "replace")
        if len(raw) > REPLY_TEXT_BYTES_MAX:
            return raw[: REPLY_TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
        return raw.decode()

    def __str__(self) -> str:
        return f"{self.code.number} {self.reply_text}"
