# SPDX-License-Identifier: Apache-2.0
"""Arguments of 0-10 declarations: which are understood, and what they are in the model.

Arguments that nobody understands are refused (0-10/s157, 0-10/s170, 0-10/s190), unless the setting
``specification_arguments`` is off. The names of the field's brokers are understood as far as there
is something like it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.v0_10.fault import fault
from headrace.model.arguments import QUEUE_ARGUMENTS
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import ExchangeBind, ExchangeDeclare, QueueDeclare

ALTERNATE = "alternate-exchange"

RENAMED = {
    "qpid.max_count": "x-max-length",
    "qpid.max_size": "x-max-length-bytes",
    "qpid.priorities": "x-max-priority",
}
POLICIES = {  # qpid.policy_type, as x-overflow has it.
    "ring": "drop-head",
    "ring_strict": "drop-head",
    "reject": "reject-publish",
    "flow_to_disk": None,  # What every queue does when memory is short.
    "none": None,
}
HINTS = frozenset(  # Understood: none changes what the queue does with messages.
    {
        "qpid.alert_count",
        "qpid.alert_count_down",
        "qpid.alert_count_up",
        "qpid.alert_repeat_gap",
        "qpid.alert_size",
        "qpid.alert_size_down",
        "qpid.alert_size_up",
        "qpid.file_count",
        "qpid.file_size",
        "qpid.flow_resume_count",
        "qpid.flow_resume_size",
        "qpid.flow_stop_count",
        "qpid.flow_stop_size",
        "qpid.trace.exclude",
        "qpid.trace.id",
    }
)
LIFETIME = "qpid.auto_delete_timeout"  # Seconds.
POLICY = "qpid.policy_type"


class Arguments:
    """Reads arguments, strictly or not."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict

    def check_exchange(self, command: ExchangeDeclare, arguments: dict[str, Any]) -> None:
        """Refuse arguments of an exchange: there are none that it understands."""
        self._refuse(command, arguments)

    def check_binding(self, command: ExchangeBind, arguments: dict[str, Any]) -> None:
        """Refuse arguments of a binding whose exchange does not look at them."""
        self._refuse(command, arguments)

    def read_queue(self, command: QueueDeclare, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a queue under the names that the model knows.

        Raises:
            ExecutionError: one is not understood.
        """
        known: dict[str, Any] = {}
        strange: dict[str, Any] = {}
        for name, value in arguments.items():
            if name in QUEUE_ARGUMENTS and name != ALTERNATE:
                known[name] = value
            elif name in RENAMED:
                known[RENAMED[name]] = value
            elif name == POLICY and value in POLICIES:
                policy = POLICIES[value]
                if policy is not None:
                    known["x-overflow"] = policy
            elif name == LIFETIME and isinstance(value, int) and value > 0:
                known["x-expires"] = value * 1000
            elif name not in HINTS:
                strange[name] = value
        self._refuse(command, strange)
        return known

    def _refuse(self, command: Any, strange: dict[str, Any]) -> None:
        if strange and self.strict:
            raise fault(
                ExecutionCode.NOT_IMPLEMENTED,
                f"the argument '{next(iter(strange))}' is not understood",
                command,
                "arguments",
            )
