# SPDX-License-Identifier: Apache-2.0
"""Measures appends to a ledger in PostgreSQL: MB/s, p50 and p99 for each size of a group.

PYTHONPATH=src .venv/bin/python tools/ledger_rate.py URL, where URL is a database for the
measurement only. Half of each message of 1 KiB is random. --two starts two PostgreSQL servers.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.postgres import servers

SIZES_KIB = (4, 16, 64, 256, 512, 1024, 4096)
ROUND_S = 1.0
ROUNDS = 3


@contextlib.contextmanager
def measured_url(argument: str) -> Iterator[str]:
    """Yield the URL to measure."""
    if argument != "--two":
        yield argument
        return
    with servers(linked=False, on_disk=True) as started:
        yield started.primary.url()


def measure(ledger: PostgresLedger, number: int, size_kib: int) -> tuple[int, list[float]]:
    """Append for the time of a round; return the next number, and the time of each append."""
    group = [os.urandom(512) + bytes(512) for _ in range(size_kib)]
    took = []
    end = time.perf_counter() + ROUND_S
    while (begun := time.perf_counter()) < end:
        ledger.append(number, group)
        took.append(time.perf_counter() - begun)
        number += 1
    ledger.trim(number)
    return number, took


def main() -> None:
    with measured_url(sys.argv[1]) as url:
        cluster = Cluster(Address(url))
        cluster.prepare()
        with contextlib.closing(PostgresLedger(cluster, "rate", "rate")) as ledger:
            number = ledger.open().last + 1
            seen: dict[int, list[float]] = {size: [] for size in SIZES_KIB}
            rates: dict[int, list[float]] = {size: [] for size in SIZES_KIB}
            for _ in range(ROUNDS):
                for size, took in seen.items():
                    number, round_took = measure(ledger, number, size)
                    took += round_took
                    rates[size].append(size * 1024 * len(round_took) / sum(round_took) / 1e6)
    for size, took in seen.items():
        took.sort()
        rate = sorted(rates[size])[ROUNDS // 2]
        p50, p99 = took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3
        print(f"{size:5d} KiB {rate:7.1f} MB/s, p50 {p50:.2f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
