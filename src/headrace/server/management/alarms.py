# SPDX-License-Identifier: Apache-2.0
"""Operations about alarms (:mod:`headrace.server.observe.alarms`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.objects import moment
from headrace.server.observe.alarms import EVERYWHERE, Alarms

if TYPE_CHECKING:
    from headrace.server.management.call import Answered, Call, Operation, Steps

REASON_OCTETS_MAX = 100  # Several go into one short string.
REASON = "set by an operator"


def list_alarms(call: Call) -> Steps:
    """Each alarm, and how many publishers wait."""
    alarms = alarms_of(call)
    for alarm, since_ms in list(alarms.active.items()):
        yield {
            "source": alarm.source,
            "vhost": alarm.vhost,
            "reason": alarm.reason,
            "since": moment(since_ms),
        }
    return {"items": len(alarms.active), "blocked": len(alarms.reactor.blocked)}


def set_alarm(call: Call) -> Answered:
    """Hold the publishers of one virtual host, or of all."""
    reason = call.text("reason", REASON, octets_max=REASON_OCTETS_MAX)
    if not reason.isprintable():
        call.refuse("bad-request", "'reason' has characters that cannot be printed")
    where = place_of(call)
    call.broker.note_operator(call, f"sets an alarm{named(where)}: {reason}")
    alarms_of(call).hold(where, reason)
    return {}


def clear_alarm(call: Call) -> Answered:
    """Let them go on; memory and disk clear themselves."""
    where = place_of(call)
    if not alarms_of(call).release(where):
        call.refuse("not-found", f"no operator set an alarm{named(where)}")
    call.broker.note_operator(call, f"clears the alarm{named(where)}")
    return {}


def alarms_of(call: Call) -> Alarms:
    """Return the broker's alarms."""
    assert call.broker.alarms is not None
    return call.broker.alarms


def place_of(call: Call) -> str:
    """Return where an alarm is to hold."""
    return EVERYWHERE if call.request.get("vhost") is None else call.vhost().name


def named(vhost: str) -> str:
    """Return a place as part of a sentence."""
    return f" for vhost '{vhost}'" if vhost else ""


OPERATIONS: dict[str, Operation] = {
    "list alarms": list_alarms,
    "set alarm": set_alarm,
    "clear alarm": clear_alarm,
}
