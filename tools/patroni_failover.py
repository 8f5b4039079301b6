# SPDX-License-Identifier: Apache-2.0
"""Measure the time that a client waits for a confirm while Patroni replaces a cluster's leader.

    PYTHONPATH=build/compiled .venv/bin/python tools/patroni_failover.py

Three servers run under Patroni with synchronous_mode and synchronous_mode_strict. The leader and
its Patroni are killed while a client publishes; tests/cluster/test_patroni.py checks the messages.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.broker_process import Served
from support.cluster import channel_to, put
from support.patroni import TTL_S, patroni

DURATION_S = TTL_S + 20.0


def main() -> None:
    with patroni() as cluster, tempfile.TemporaryDirectory() as folder:
        os.environ["HEADRACE_CLUSTER"] = cluster.url()
        broker = Served(Path(folder) / "broker", "--cluster-name", "a").start()
        try:
            with channel_to(broker) as channel:
                channel.queue_declare("orders", durable=True)
                leader = cluster.wait_for_leader()
                begin_s, longest_s, count = time.monotonic(), 0.0, 0
                threading.Timer(1.0, leader.kill).start()
                while time.monotonic() - begin_s < DURATION_S:
                    sent_s = time.monotonic()
                    put(channel, [count])
                    count += 1
                    longest_s = max(longest_s, time.monotonic() - sent_s)
        finally:
            broker.kill()
    print(f"the longest of {count} confirms took {longest_s:.1f} s; the leader's ttl is {TTL_S} s")


if __name__ == "__main__":
    main()
