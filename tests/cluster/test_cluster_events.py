# SPDX-License-Identifier: Apache-2.0
"""A client of a broker in a cluster reads what happens there from the exchange of events."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from support.brokers.broker_process import until
from support.cluster import LEASE, channel_to, operator
from support.postgres import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from support.brokers.broker_process import Served
    from support.postgres import Servers

EVENTS = "amq.rabbitmq.event"


def test_a_client_reads_where_virtual_hosts_go_and_when_it_waited(
    make: Callable[..., Served], database: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, dict[str, object]]] = []
    with contextlib.closing(Proxy(database.primary.port)) as proxy:
        monkeypatch.setenv("HEADRACE_CLUSTER", database.primary.url(proxy.port))
        first = make("a", *LEASE).start()
        second = make("b", *LEASE).start()
        with channel_to(first) as channel, operator(first) as client:
            channel.queue_declare("events", exclusive=True)
            channel.queue_bind("events", EVENTS, "cluster.vhost.*")
            channel.queue_bind("events", EVENTS, "cluster.frozen")
            channel.queue_bind("events", EVENTS, "cluster.thawed")

            def received(*keys: str) -> bool:
                method, properties, _ = channel.basic_get("events", auto_ack=True)
                if method is not None:
                    events.append((method.routing_key, properties.headers))
                return [key for key, _ in events] == list(keys)

            second.stop()  # Nobody takes the virtual host while the database does not answer.
            proxy.hold()
            until(lambda: bool(client.ask("cluster status")["frozen"]), "the freeze")
            proxy.go_on()
            until(lambda: received("cluster.frozen", "cluster.thawed"), "both events")
            assert events[0][1]["reason"]
            client.ask("put vhost", name="/orders")
            until(
                lambda: received("cluster.frozen", "cluster.thawed", "cluster.vhost.taken"),
                "the owner of the new virtual host",
            )
            assert events[-1][1]["vhost"] == "/orders"
            assert events[-1][1]["epoch"] == 1
            second.start()
            client.ask("move vhost", vhost="/orders", broker="b")
            until(lambda: events[-1][0] == "cluster.vhost.given" or received(), "it was given")
            assert events[-1][1]["vhost"] == "/orders"
