# SPDX-License-Identifier: Apache-2.0
"""When the deliveries of a consumer with `x-consumer-timeout` are overdue."""

from __future__ import annotations

import pytest

from headrace.gateway.messages.consumer_timeout import ConsumerTimeout
from headrace.model.queue.destination import Consumer
from support.brokers.small_host import SmallHost


@pytest.mark.parametrize("timeout_ms", [1, 2, 7, 8, 9, 15, 16, 100, 1001, 1_800_007])
def test_a_delivery_is_overdue_between_one_and_one_and_an_eighth_of_the_timeout(
    timeout_ms: int,
) -> None:
    deliveries_ms = [0]  # The time of each delivery, by its number.
    delays_ms: list[int] = []  # The time until it is overdue, by its number.
    now_ms = 0

    def record_overdue(last: int) -> None:
        delays_ms.extend(now_ms - sent_ms for sent_ms in deliveries_ms[len(delays_ms) : last + 1])

    timeout = ConsumerTimeout(
        Consumer(SmallHost("q").queues["q"], "", False),
        timeout_ms,
        newest=lambda: len(deliveries_ms) - 1,
        overdue=record_overdue,
        is_active=lambda: True,
    )
    next_ms = timeout.period_ms
    while len(delays_ms) < 20:
        now_ms = next_ms
        next_ms = timeout.check(now_ms)
        deliveries_ms.append(now_ms)  # Just after a check, so that its sample is the latest.
    assert timeout_ms <= min(delays_ms)
    assert max(delays_ms) <= timeout_ms + -(-timeout_ms // 8)
