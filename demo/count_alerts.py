# SPDX-License-Identifier: Apache-2.0
"""An ordinary pika program that counts the alerts in a queue until it gets SIGTERM.

    python -m demo.count_alerts URL QUEUE

It prints a line of JSON after new alerts. After SIGTERM it empties the queue and ends.
"""

from __future__ import annotations

import json
import signal
import sys
import time

import pika

REPORT_EVERY_S = 0.2
QUIET_S = 0.5  # After SIGTERM and this time without an alert the program ends.
PREFETCH = 200


def main() -> int:
    url, queue = sys.argv[1:]
    stop_requests = []
    signal.signal(signal.SIGTERM, lambda *_: stop_requests.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent process handles ^C.
    seen: set[str] = set()
    delivered = minutes = 0
    last_report_s = 0.0
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        for method, properties, body in channel.consume(queue, inactivity_timeout=QUIET_S):
            if method is None:
                if stop_requests:
                    break
                continue
            delivered += 1
            if properties.message_id not in seen:  # The sink publishes at least once.
                seen.add(properties.message_id)
                minutes += json.loads(body)["dep_delay"]
            channel.basic_ack(method.delivery_tag)
            if time.monotonic() - last_report_s >= REPORT_EVERY_S:
                last_report_s = time.monotonic()
                report(delivered, seen, minutes)
        channel.cancel()
    report(delivered, seen, minutes)
    return 0


def report(delivered: int, seen: set[str], minutes: int) -> None:
    counts = {"delivered": delivered, "alerts": len(seen), "minutes": minutes}
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
