# SPDX-License-Identifier: Apache-2.0
"""A broker with an object of every kind that its HTTP API returns."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any

from headrace.client import blocking
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import trustme

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
QUEUES = ("plain", "safe", "log", "bounded")
SEER = ("seer", "a-password-of-tests")  # A user with the tag management, for one virtual host.
DETACHED = "left behind"  # The name of a session whose connection is closed.


@contextlib.contextmanager
def one_of_everything(
    data: Path, authority: trustme.CA
) -> Iterator[tuple[LocalConsole, Mapping[str, list[str]]]]:
    """Yield a console, and the names of objects by the parameters of the API's paths."""
    certificate = authority.issue_cert("127.0.0.1")
    chain, key = data / "chain.pem", data / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    tls = {"tls_port": 0, "tls_cert": chain, "tls_key": key}
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with LocalConsole(data, broker=tls) as console, contextlib.ExitStack() as stack:
        make_objects(console)
        url = console.broker.url
        stack.enter_context(in_traffic(url, context, console))
        yield console, names_in(console)


def make_objects(console: LocalConsole) -> None:
    """Create the objects that need no connection of AMQP."""
    assert console.console is not None
    link: Any = console.console.link

    def ask(do: str, **fields: Any) -> None:
        console.run(link.ask(do, **fields))

    ask("put vhost", name="other", description="another", tags=["a", "b"])
    ask("put user", name="none", password="a-password-of-tests", tags=[])
    ask("put user", name=SEER[0], password=SEER[1], tags=["management"])
    ask("put permission", user=SEER[0], vhost="/", configure="", write="", read=".*")
    policy: dict[str, Any] = {"vhost": "/", "name": "p", "definition": {"max-length": 9}}
    ask("put policy", **policy, pattern="^bounded$", priority=-3, apply_to="classic_queues")
    ask("put operator policy", **policy, pattern="^bounded$")
    ask("put limit", vhost="/", name="max-queues", value=90)
    ask("put limit", user="guest", name="max-channels", value=90)
    topic = {"user": "guest", "vhost": "/", "exchange": "amq.topic", "write": ".*", "read": ".*"}
    ask("put topic permission", **topic)
    ask("put global parameter", name="g", value={"a": 1})
    ask("put global parameter", name="scalar", value=7)
    ask("put global parameter", name="cluster_tags", value={"region": "north"})
    ask("declare queue", name="plain", durable=False)
    ask("declare queue", name="safe", arguments={"x-queue-type": "quorum"})
    ask("declare queue", name="log", arguments={"x-queue-type": "stream"})
    ask("declare queue", name="bounded")
    for index, queue in enumerate(QUEUES):
        arguments = {"of": queue} if index else None
        ask("bind", source="amq.topic", destination=queue, routing_key=queue, arguments=arguments)


@contextlib.contextmanager
def in_traffic(url: str, context: ssl.SSLContext, console: LocalConsole) -> Iterator[None]:
    """Keep connections of each version and over TLS open, with consumers and unacked messages."""
    with contextlib.ExitStack() as stack:
        for version in VERSIONS:
            link = stack.enter_context(blocking.connect(f"{url}?version={version}"))
            channel = link.channel()
            for queue in QUEUES:
                channel.publish(b"m", queue, mandatory=True)
            channel.publish(b"m", "nowhere")
            stack.enter_context(channel.consume("plain"))
            if version == "0-9-1":
                channel.bind_exchange("amq.topic", "amq.direct", routing_key="us.#")
                channel.declare_queue("", exclusive=True)
                waits = {"x-priority": -1, "x-consumer-timeout": 90_000_000}
                stack.enter_context(channel.consume("safe", prefetch=7, arguments=waits))
                offset = {"x-stream-offset": "first"}
                stack.enter_context(channel.consume("log", prefetch=5, arguments=offset))
            if version == "0-10":
                session = stack.enter_context(link.session("own"))
                stack.enter_context(session.subscribe("bounded"))
        port = console.broker.addresses["amqps"].rpartition(":")[2]
        secure = f"amqps://guest:guest@127.0.0.1:{port}/"
        with blocking.connect(f"{url}?version=0-10", reconnect=None) as closed_link:
            closed_link.session(DETACHED, timeout_s=600)
        secured = stack.enter_context(blocking.connect(secure, ssl_context=context))
        secured.channel()
        yield


def names_in(console: LocalConsole) -> dict[str, list[str]]:
    """Return the names of objects, by the names of parameters in paths."""

    def list_names(path: str, field: str = "name") -> list[str]:
        return [row[field] for row in console.get(path)]

    return {
        "vhost": ["/", "other"],
        "queue": list_names("/api/queues/%2F"),
        "exchange": ["amq.topic", "amq.direct", "amq.default"],
        "source": ["amq.topic"],
        "kind": ["q"],
        "destination": [*QUEUES],
        "user": ["guest", SEER[0]],
        "node": list_names("/api/nodes"),
        "connection": list_names("/api/connections"),
        "channel": list_names("/api/channels"),
        "component": ["shovel", "federation-upstream"],
        "policies": ["p"],
        "operator-policies": ["p"],
        "global-parameters": ["g", "scalar", "cluster_tags"],
    }
