# SPDX-License-Identifier: Apache-2.0
"""The class of a queue, from its arguments: one of Qpid's kinds, or a classic queue.

Arguments of two kinds contradict each other: the declaration is refused, and the error names both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import number
from headrace.model.errors import InvalidArgument
from headrace.model.queue import flow_control
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.grouped import GroupedQueue
from headrace.model.queue_kinds.inspecting import SHARES, InspectingQueue
from headrace.model.queue_kinds.inspecting import SORT_KEY as SORT
from headrace.model.queue_kinds.last_value import LastValueQueue
from headrace.model.queue_kinds.priority import ARGUMENTS as PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue as AnyQueue

LAST_VALUE = (
    "qpid.last_value_queue_key",
    "qpid.last_value_queue",
    "qpid.last_value_queue_no_browse",
)
GROUP = "qpid.group_header_key"
HOLD = "holdOnPublishEnabled"
DEDUPLICATION = "x-message-deduplication"  # Deduplicating queues are a kind of their own.

_KIND_ARGUMENTS = (LAST_VALUE, (SORT,), (GROUP,), PRIORITIES)
_REQUIRED_ARGUMENTS = (
    ("qpid.LVQ_key", LAST_VALUE),
    ("qpid.shared_msg_group", (GROUP,)),
    ("qpid.default-message-group", (GROUP,)),
    *((name, PRIORITIES[:1]) for name in SHARES),
)


def first_set(arguments: Mapping[str, object], names: tuple[str, ...]) -> str:
    """Return the first of ``names`` whose argument is set and not zero; "" if none is."""
    for name in names:
        if number(arguments.get(name, 0)) != 0:
            return name
    return ""


def check(arguments: Mapping[str, object], subject: str) -> None:
    """Refuse arguments that contradict each other; ``subject`` names the queue.

    Raises:
        InvalidArgument: two arguments contradict each other; the text names both.
    """
    kind_arguments = [
        name for name in (first_set(arguments, family) for family in _KIND_ARGUMENTS) if name
    ]
    if len(kind_arguments) > 1:
        raise _contradiction(kind_arguments[1], kind_arguments[0], subject)
    for family in (LAST_VALUE[:1], PRIORITIES):
        names = [name for name in family if first_set(arguments, (name,))]
        if len(names) > 1:
            raise _contradiction(names[1], names[0], subject)
    hold = first_set(arguments, (HOLD,))
    if hold and first_set(arguments, LAST_VALUE):
        raise _contradiction(hold, first_set(arguments, LAST_VALUE), subject)
    deduplication = first_set(arguments, (DEDUPLICATION,))
    kind_arguments += [name for name in (hold, first_set(arguments, SHARES)) if name]
    kind_arguments = [name for name in kind_arguments if name not in PRIORITIES]
    if deduplication and kind_arguments:
        raise _contradiction(deduplication, kind_arguments[0], subject)
    flow_control.check_thresholds(arguments, subject)
    for name, needed in _REQUIRED_ARGUMENTS:
        if name in arguments and not first_set(arguments, needed):
            raise InvalidArgument(f"invalid arg '{name}' for {subject}: it needs '{needed[0]}'")


def _contradiction(name: str, other: str, subject: str) -> InvalidArgument:
    return InvalidArgument(f"invalid arg '{name}' for {subject}: it contradicts '{other}'")


def queue_class(arguments: Mapping[str, object]) -> type[AnyQueue]:
    """Return the class of a queue with these checked arguments."""
    if first_set(arguments, LAST_VALUE):
        return LastValueQueue
    if first_set(arguments, (GROUP,)):
        return GroupedQueue
    if first_set(
        arguments, (SORT, *SHARES, HOLD, *flow_control.ALERT_MESSAGE, *flow_control.LENGTH_LIMITS)
    ):
        return InspectingQueue
    return Queue
