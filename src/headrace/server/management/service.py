# SPDX-License-Identifier: Apache-2.0
"""Operations about the broker as a service: how it is, settings, logs, out of service and back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.server.config.errors import StartError
from headrace.server.config.logs import KEPT_MAX, LogError
from headrace.server.config.settings import SettingError
from headrace.server.management.objects import moment
from headrace.server.net.drain import CLOSE_S
from headrace.server.net.tls import TlsError

if TYPE_CHECKING:
    from headrace.server.broker import Broker
    from headrace.server.management.call import Answered, Call, Operation, Steps

REASON = "the broker goes out of service for maintenance"
GRACE_S_MAX = 3600


def status(call: Call) -> Steps:
    """What the broker is, where it listens, and how much it holds."""
    broker = call.broker
    counters = broker.counters
    delivered, acknowledged = counters.delivered, counters.acknowledged
    for vhost in list(broker.vhosts.values()):
        for queue in list(vhost.queues.values()):  # One step for each: there may be very many.
            for one in (queue, *(queue.lanes or {}).values()):
                delivered += one.delivered
                acknowledged += one.acknowledged
            yield None
    return {
        "version": __version__,
        "pid": os.getpid(),
        "since": moment(broker.started_ms),
        "identity": "" if broker.storage is None else broker.storage.identity,
        "listens": dict(broker.addresses),
        "data": None if broker.settings.memory else str(broker.settings.data.absolute()),
        "draining": broker.drain.active,
        "connections": len(broker.drain.left()),
        "vhosts": len(broker.vhosts),
        "memory_used": counters.memory_used,
        "memory_max": counters.memory_max,
        "published": counters.published,
        "delivered": delivered,
        "acknowledged": acknowledged,
    }


# --- Health ------------------------------------------------------------------------------------


def alarms_ok(broker: Broker) -> str:
    """No publisher has to wait."""
    assert broker.alarms is not None
    return ", ".join(
        f"{alarm.reason} ({alarm.vhost})" if alarm.vhost else alarm.reason
        for alarm in broker.alarms.active
    )


def listeners_ok(broker: Broker) -> str:
    """Every port is open."""
    closed = [str(one.address[1]) for one in broker.listeners if one.socket is None]
    return f"closed: port {', '.join(closed)}" if closed else ""


def store_ok(broker: Broker) -> str:
    """Everything that is to be kept can be written."""
    assert broker.storage is not None
    troubled = [f"journal of vhost '{n}'" for n, s in broker.storage.stores.items() if s.full]
    if broker.audit.file is not None and broker.audit.file.failing:
        held = "; logins and changes are refused" if broker.audit.file.strict else ""
        troubled.append(f"audit log: {broker.audit.file.failing}{held}")
    return f"cannot be written: {', '.join(troubled)}" if troubled else ""


def ready_ok(broker: Broker) -> str:
    """New clients are welcome."""
    return "draining" if broker.drain.active else "" if broker.started_ms else "starting"


CHECKS = {
    "ready": ready_ok,
    "listeners": listeners_ok,
    "alarms": alarms_ok,
    "store": store_ok,
}


def health(call: Call) -> Answered:
    """Do the checks that are asked for, or all; tell of each what is wrong, empty when nothing."""
    wanted = call.request.get("checks", list(CHECKS))
    if not isinstance(wanted, list) or not all(one in CHECKS for one in wanted):
        call.refuse("bad-request", f"checks are {', '.join(CHECKS)}")
    found = {name: CHECKS[name](call.broker) for name in wanted}
    return {"healthy": not any(found.values()), "checks": found}


# --- Out of service and back --------------------------------------------------------------------


async def drain(call: Call) -> Answered:
    """Close the ports, let clients go, then send away who is left, with everything confirmed."""
    broker = call.broker
    grace_s = call.number("grace_s", 0, most=GRACE_S_MAX)
    reason = call.text("reason", REASON, octets_max=200)
    if not reason.isprintable():
        call.refuse("bad-request", "'reason' has characters that cannot be printed")
    broker.note_operator(call, "drains the broker")
    away = broker.drain
    away.begin()
    before = len(away.left())
    await call.tell({"connections": before, "grace_s": grace_s})
    await away.wait_for_none(grace_s)
    by_themselves = before - len(away.left())
    told = await away.send_away(reason) if away.active else 0
    gone = await away.wait_for_none(CLOSE_S)
    kept = await away.wait_for_disk()
    if not away.active:
        call.refuse("conflict", "the broker was resumed meanwhile")
    return {"left": by_themselves, "closed": told, "open": len(away.left()), "all_kept": kept} | (
        {} if gone else {"stubborn": len(away.left())}
    )


def resume(call: Call) -> Answered:
    """Open the ports again."""
    if not call.broker.drain.active:
        call.refuse("precondition", "the broker is not drained")
    call.broker.note_operator(call, "resumes the broker")
    call.broker.drain.end()
    return {"listens": dict(call.broker.addresses)}


# --- Settings and logs ---------------------------------------------------------------------------


def reload(call: Call) -> Answered:
    """Read the settings again."""
    if call.broker.read_settings is None:
        call.refuse("precondition", "this broker was not started by `headrace serve`")
    call.broker.note_operator(call, "has the settings read again")
    try:
        return call.broker.reload()
    except (SettingError, LogError, StartError, TlsError) as error:
        call.refuse("precondition", str(error))


def rotate_logs(call: Call) -> Answered:
    """Rename the log file, and the audit log, and begin new ones."""
    keep = call.number("keep", 7, least=1, most=KEPT_MAX)
    call.broker.rotate_audit_log(keep)
    return with_logs(call, lambda logs: {"renamed": logs.rotate(keep)})


def reopen_logs(call: Call) -> Answered:
    """Go on in the file that has the name of the log now; the audit log too."""
    call.broker.reopen_audit_log()
    return with_logs(call, lambda logs: {"reopened": logs.reopen()})


def with_logs(call: Call, work: Any) -> Answered:
    """Do something with the log."""
    if call.broker.logs is None:
        call.refuse("precondition", "this broker was not started by `headrace serve`")
    try:
        answer: Answered = work(call.broker.logs)
    except LogError as error:
        call.refuse("precondition", str(error))
    return answer


OPERATIONS: dict[str, Operation] = {
    "status": status,
    "health": health,
    "drain": drain,
    "resume": resume,
    "reload": reload,
    "rotate logs": rotate_logs,
    "reopen logs": reopen_logs,
}
