# SPDX-License-Identifier: Apache-2.0
"""Operations about alarms (:mod:`headrace.server.observe.alarms`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.config.json_values import iso_time
from headrace.server.management.fields import read_reason
from headrace.server.management.operation_table import OperationTable
from headrace.server.observe.alarms import EVERYWHERE
from headrace.user_tags import ADMINISTER, MONITOR

if TYPE_CHECKING:
    from headrace.management_rows import AlarmRow
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

REASON_BYTES_MAX = 100  # Clients receive several reasons joined in one short string.
REASON = "set by an operator"


@operation("list alarms", MONITOR, reads=True)
def list_alarms(call: Call) -> Steps:
    """List the active alarms; the last line has the number of blocked publishers."""
    alarms = call.broker.alarms
    for alarm, since_ms in list(alarms.active.items()):
        row: AlarmRow = {
            "source": alarm.source,
            "vhost": alarm.vhost,
            "reason": alarm.reason,
            "since": iso_time(since_ms),
        }
        yield row
    return {"items": len(alarms.active), "blocked": len(alarms.reactor.blocked)}


@operation("set alarm", ADMINISTER, fields="`vhost`, `reason`")
def set_alarm(call: Call) -> JsonLine:
    """Block the publishers of one virtual host, or of all."""
    reason = read_reason(call, REASON, REASON_BYTES_MAX)
    vhost = read_alarm_vhost(call)
    call.log(f"sets an alarm{log_suffix(vhost)}: {reason}")
    call.broker.alarms.set_alarm(vhost, reason)
    return {}


@operation("clear alarm", ADMINISTER, fields="`vhost`")
def clear_alarm(call: Call) -> JsonLine:
    """Clear an alarm that an operator has set; alarms of memory and disk clear themselves."""
    vhost = read_alarm_vhost(call)
    if not call.broker.alarms.clear_alarm(vhost):
        call.refuse("not-found", f"no operator set an alarm{log_suffix(vhost)}")
    call.log(f"clears the alarm{log_suffix(vhost)}")
    return {}


def read_alarm_vhost(call: Call) -> str:
    """Return the virtual host that a request names, or ``EVERYWHERE``."""
    vhost = call.vhost_filter()
    return EVERYWHERE if vhost is None else vhost.name


def log_suffix(vhost: str) -> str:
    """Return the virtual host as the end of a log line."""
    return f" for vhost {vhost!r}" if vhost else ""
