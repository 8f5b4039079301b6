# SPDX-License-Identifier: Apache-2.0
"""A broker of a cluster whose PostgreSQL is three servers under Patroni."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Served
from support.cluster import channel_to, drained, put
from support.patroni import Patroni, PatroniNode, patroni

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def database() -> Iterator[Patroni]:
    with patroni() as cluster:
        yield cluster


@pytest.mark.timeout(200)
def test_clients_wait_while_another_server_becomes_the_leader(
    database: Patroni, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planned change and the loss of a machine: no client reconnects, and nothing is lost."""
    monkeypatch.setenv("HEADRACE_CLUSTER", database.url())
    broker = Served(tmp_path / "broker", "--cluster-name", "a").start()
    numbers = itertools.count()
    try:
        with channel_to(broker) as channel:
            channel.queue_declare("orders", durable=True)

            def publish_during(change: Callable[[PatroniNode], None]) -> None:
                """Publish and wait for each confirm until another server leads, and on it."""
                former = database.wait_for_leader()
                put(channel, itertools.islice(numbers, 50))

                def change_leader() -> None:
                    change(former)
                    database.wait_for_leader(other_than=former)

                with ThreadPoolExecutor(1) as pool:
                    changed = pool.submit(change_leader)
                    while not changed.done():
                        put(channel, itertools.islice(numbers, 1))
                    changed.result()
                put(channel, itertools.islice(numbers, 50))

            publish_during(PatroniNode.switch_over)
            database.wait_for_standbys()
            publish_during(PatroniNode.kill)
        assert drained(broker) == list(range(next(numbers)))
        assert "is served here from now on" in broker.log()
        assert broker.log().count("is served here from now on") == 1  # It kept the virtual host.
    finally:
        broker.kill()
