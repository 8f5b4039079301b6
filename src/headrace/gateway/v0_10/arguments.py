# SPDX-License-Identifier: Apache-2.0
"""Arguments of 0-10 bindings: which are understood.

Arguments that nobody understands are refused (0-10/s157, 0-10/s170, 0-10/s190), unless the setting
``specification_arguments`` is off. Those of queues and exchanges are read by the model, for all
versions; there the setting counts where the virtual host has no rule (``unknown_arguments``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.v0_10.fault import fault
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import ExchangeBind


PLAIN: tuple[Any, ...] = (bool, int, float, str, bytes)


class Arguments:
    """Reads arguments, strictly or not."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict

    def check_binding(self, command: ExchangeBind, arguments: dict[str, Any]) -> None:
        """Refuse arguments of a binding whose exchange does not look at them."""
        self._refuse(command, arguments)

    def _refuse(self, command: Any, strange: dict[str, Any]) -> None:
        if strange and self.strict:
            raise fault(
                ExecutionCode.NOT_IMPLEMENTED,
                f"the argument '{next(iter(strange))}' is not understood",
                command,
                "arguments",
            )


def plain(value: Any) -> Any:
    """Return a map's value in types that do not tell how wide it was on the wire."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    for kind in PLAIN:
        if isinstance(value, kind):
            return kind(value)
    return value
