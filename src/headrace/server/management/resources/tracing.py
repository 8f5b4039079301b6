# SPDX-License-Identifier: Apache-2.0
"""The operation that switches tracing: copies of what is published and delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from headrace.server.management.call import Answered, Call

operation = OperationTable()


@operation("trace", ADMINISTER, fields="`vhost`, `on`")
def switch(call: Call) -> Answered:
    """Switch tracing of a virtual host on or off; without ``on`` return the state."""
    vhost = call.vhost()
    if "on" in call.request:
        if call.flag("on"):
            call.broker.trace(vhost)
        else:
            vhost.trace_no_more()
    tracer = vhost.tracer
    return {
        "vhost": vhost.name,
        "on": tracer is not None,
        "lost": 0 if tracer is None else tracer.lost,
    }
