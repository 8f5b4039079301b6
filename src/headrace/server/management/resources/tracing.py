# SPDX-License-Identifier: Apache-2.0
"""Tracing of a virtual host: copies of published and delivered messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine

operation = OperationTable()


@operation("trace", ADMINISTER, fields="`vhost`, `on`")
def switch_tracing(call: Call) -> JsonLine:
    """Switch the tracing of a virtual host on or off; without ``on``, return its state."""
    vhost = call.vhost()
    if "on" in call.request:
        set_tracing(call, vhost, call.flag("on"))
    tracer = vhost.tracer
    return {
        "vhost": vhost.name,
        "on": tracer is not None,
        "lost": 0 if tracer is None else tracer.lost,
    }


def set_tracing(call: Call, vhost: VirtualHost, on: bool) -> None:
    """Start or end the tracing of a virtual host."""
    if on:
        call.broker.trace(vhost)
    else:
        vhost.stop_tracing()
