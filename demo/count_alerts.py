# SPDX-License-Identifier: Apache-2.0
"""An ordinary pika program: counts the alerts of a queue until it is told to stop.

    python -m demo.count_alerts URL QUEUE

It prints a JSON line whenever the count grew. After SIGTERM it takes what is still in the queue.
"""

from __future__ import annotations

import json
import signal
import sys
import time

import pika

REPORT_EVERY_S = 0.2
QUIET_S = 0.5
PREFETCH = 200


def main() -> int:
    url, queue = sys.argv[1:]
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent says when.
    seen: set[str] = set()
    delivered = minutes = 0
    reported = 0.0
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        for method, properties, body in channel.consume(queue, inactivity_timeout=QUIET_S):
            if method is None:
                if stopping:
                    break
                continue
            delivered += 1
            if properties.message_id not in seen:  # The sink publishes at least once.
                seen.add(properties.message_id)
                minutes += json.loads(body)["dep_delay"]
            channel.basic_ack(method.delivery_tag)
            if time.monotonic() - reported >= REPORT_EVERY_S:
                reported = time.monotonic()
                report(delivered, seen, minutes)
        channel.cancel()
    report(delivered, seen, minutes)
    return 0


def report(delivered: int, seen: set[str], minutes: int) -> None:
    counts = {"delivered": delivered, "alerts": len(seen), "minutes": minutes}
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
