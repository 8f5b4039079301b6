# SPDX-License-Identifier: Apache-2.0
"""Lists of queues go on while queues come and go."""

from __future__ import annotations

from headrace.model.counters import Counters
from headrace.model.ports import Store
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.server.management.call import live_queues


def test_a_queue_that_is_deleted_meanwhile_is_left_out() -> None:
    vhost = VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))
    for number in range(4):
        vhost.declare_queue(f"q{number}")
    queues = live_queues(vhost)
    first = next(queues).name
    vhost.delete_queue("q2")
    assert [first, *(queue.name for queue in queues)] == ["q0", "q1", "q3"]
