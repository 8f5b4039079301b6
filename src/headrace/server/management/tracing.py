# SPDX-License-Identifier: Apache-2.0
"""Operations about tracing: copies of what is published and delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.management.call import Answered, Call, Operation


def switch(call: Call) -> Answered:
    """Trace a virtual host, or trace it no longer; without ``on`` only say which it is."""
    vhost = call.vhost()
    if "on" in call.request:
        if call.flag("on"):
            call.broker.hosts.trace(vhost)
        else:
            vhost.trace_no_more()
    tracer = vhost.tracer
    return {
        "vhost": vhost.name,
        "on": tracer is not None,
        "lost": 0 if tracer is None else tracer.lost,
    }


OPERATIONS: dict[str, Operation] = {"trace": switch}
