# SPDX-License-Identifier: Apache-2.0
"""The contents of a virtual host, as objects of the classes of Qpid's C++ broker.

The values are those of operators' lists (:mod:`headrace.server.management`), under the names of
Qpid's schema ``org.apache.qpid.broker``. A value that this broker does not have is omitted; Qpid's
tools then show an empty field.

An operator, who has the tag ``administrator`` or ``monitoring``, sees everything in the virtual
host. Other users see the objects on which they have any permission, and their own connections.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from headrace import __version__
from headrace.gateway.requests.requests import RequestService
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.model.arguments.memory_estimate import table_memory
from headrace.model.exchange.binding import QUEUE
from headrace.server.config.json_values import table_as_json
from headrace.server.management.call import Call, is_internal, live_queues
from headrace.server.management.resources.channels import describe_channel, describe_session
from headrace.server.management.resources.connections import client_connections, describe_connection
from headrace.server.management.resources.consumers import consumers_and_browsers, describe_consumer
from headrace.server.management.resources.exchanges import describe_exchange
from headrace.server.management.resources.queues import describe_queue
from headrace.user_tags import ADMINISTRATOR, MONITORING

if TYPE_CHECKING:
    from headrace.gateway.security.user import User
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.management_rows import ChannelRow
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.config.json_values import Json
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.resources.connections import ClientConnection

PACKAGE = "org.apache.qpid.broker"
BROKER = "amqp-broker"  # The name of the only object of its class.
OPERATORS = frozenset((ADMINISTRATOR, MONITORING))
OBJECTS_MAX = 50  # Objects of one message, and of a step before the loop serves others.
ARGUMENT_BYTES_MAX = 1 << 16  # Bytes of arguments after which a message and a step end earlier.
NS_PER_MS = 1_000_000
CREDIT, WINDOW = "CREDIT", "WINDOW"


class QmfObject(TypedDict):
    """An object in an answer. Times are nanoseconds since 1970."""

    _schema_id: dict[str, str]
    _object_id: dict[str, str]
    _values: dict[str, object]
    _create_ts: int
    _update_ts: int
    _delete_ts: int


class ObjectValues(NamedTuple):
    """The key and the values of an object."""

    key: str  # The object's name within its class.
    values: dict[str, object]
    created_ms: int = 0  # 0 if unknown; answers then have the start of the broker.


ObjectSteps = Iterator[ObjectValues | None]  # None is a step of work without an object.


class View:
    """The objects of a virtual host that one user may see."""

    def __init__(self, broker: ManagedBroker, vhost: VirtualHost, user: User, agent: str) -> None:
        self.broker = broker
        self.vhost = vhost
        self.user = user
        self.agent = agent
        self.operates = bool(OPERATORS & set(user.tags))
        self.call = Call(broker, {}, operator=f"user {user.name!r} by QMF")

    def sees(self, name: str) -> bool:
        """Return True if the user may see a queue or an exchange."""
        access = self.broker.access
        return self.operates or access.any_allowed(
            self.user, self.vhost.name, name or "amq.default"
        )

    def is_own(self, user: User | None) -> bool:
        """Return True if the user may see an object that belongs to ``user``."""
        return self.operates or (user is not None and bool(self.user.same_as(user)))

    def qmf_object(self, kind: str, item: ObjectValues) -> QmfObject:
        """Return an object as answers have it."""
        created_ms = item.created_ms or self.broker.started_ms
        return {
            "_schema_id": {"_package_name": PACKAGE, "_class_name": kind, "_type": "_data"},
            "_object_id": {"_agent_name": self.agent, **reference(kind, item.key)},
            "_values": item.values,
            "_create_ts": created_ms * NS_PER_MS,
            "_update_ts": self.vhost.counters.now_ms * NS_PER_MS,
            "_delete_ts": 0,
        }


def reference(kind: str, key: str) -> dict[str, str]:
    """Return the reference to an object of a class, by its key."""
    return {"_object_name": f"{PACKAGE}:{kind}:{key}"}


def class_and_key(name: str) -> tuple[str, str]:
    """Return class and key from the name of an object; for a foreign name, an unknown class."""
    package, _, class_key = name.partition(":")
    kind, _, key = class_key.partition(":")
    return (kind, key) if package == PACKAGE else (name, "")


def chunks(view: View, kind: str) -> Generator[list[QmfObject] | None]:
    """Yield all objects of a class in chunks; None for a step without an object."""
    chunk: list[QmfObject] = []
    steps = argument_bytes = 0
    for item in CLASSES[kind](view):
        steps += 1
        if item is not None:
            chunk.append(view.qmf_object(kind, item))
            argument_bytes += table_memory(
                cast("Mapping[str, object] | None", item.values.get("arguments"))
            )
        if steps == OBJECTS_MAX or argument_bytes > ARGUMENT_BYTES_MAX:
            yield chunk or None
            chunk = []
            steps = argument_bytes = 0
    if chunk:
        yield chunk


def find(view: View, kind: str, key: str) -> Generator[None, None, QmfObject | None]:
    """Return the object of a class with a key; None if the user sees no such object."""
    match: ObjectValues | None = None
    if kind == "queue":
        queue = view.vhost.queues.get(key)
        match = None if queue is None else queue_values(view, queue)
    elif kind == "exchange":
        exchange = view.vhost.exchanges.get(key)
        match = None if exchange is None else exchange_values(view, exchange)
    elif kind in CLASSES:
        for number, item in enumerate(CLASSES[kind](view), 1):
            if item is not None and item.key == key:
                match = item
                break
            if number % OBJECTS_MAX == 0:
                yield
    return None if match is None else view.qmf_object(kind, match)


# --- Each class ---------------------------------------------------------------------------------


def brokers(view: View) -> ObjectSteps:
    """Yield the broker itself; only operators see its counts."""
    broker, counters = view.broker, view.vhost.counters
    values: dict[str, object] = {
        "name": BROKER,
        "version": __version__,
        "port": broker.settings.port,
        "maxConns": broker.settings.connections_max,
        "uptime": (counters.now_ms - broker.started_ms) * NS_PER_MS,
    }
    if view.operates:
        depth = size = number = 0
        for number, queue in enumerate(live_queues(view.vhost), 1):
            depth += queue.message_count() + queue.unacked_count
            size += queue.ready_bytes
            if number % OBJECTS_MAX == 0:
                yield None
        values |= {"queueCount": number, "msgDepth": depth, "byteDepth": size}
        values["msgTotalEnqueues"] = counters.published
    yield ObjectValues(BROKER, values)


def vhosts(view: View) -> ObjectSteps:
    """Yield the agent's virtual host."""
    name = view.vhost.name
    yield ObjectValues(vhost_key(view), {"name": name, "brokerRef": reference("broker", BROKER)})


def memories(view: View) -> ObjectSteps:
    """Yield the memory that queued messages use, and its limit."""
    counters = view.vhost.counters
    if view.operates:
        used, limit = counters.memory_used, counters.memory_max
        yield ObjectValues(BROKER, {"name": BROKER, "memory_used": used, "memory_max": limit})


def queues(view: View) -> ObjectSteps:
    """Yield each queue that the user sees, except the broker's own."""
    for queue in live_queues(view.vhost):
        yield queue_values(view, queue)


def queue_values(view: View, queue: Queue) -> ObjectValues | None:
    """Return the values of a queue; None if the user does not see it."""
    row = describe_queue(view.vhost, queue) if view.sees(queue.access_name) else None
    if row is None:
        return None
    depth = row["ready"] + row["unacked"]
    enqueued = max(row["published"], depth)  # Messages from before a restart are not counted.
    values: dict[str, object] = {
        "vhostRef": reference("vhost", vhost_key(view)),
        "name": queue.name,
        "durable": row["durable"],
        "autoDelete": row["auto_delete"],
        "exclusive": row["exclusive"],
        "arguments": row["arguments"],
        "creator": view.vhost.declared_by.get(queue, ""),
        "consumerCount": row["consumers"],
        "bindingCount": 1 + len(tuple(view.vhost.bindings_to(queue))),
        "msgDepth": depth,
        "byteDepth": row["bytes"],
        "msgTotalEnqueues": enqueued,
        "msgTotalDequeues": enqueued - depth,
        "acquires": row["delivered"],
        "unackedMessages": row["unacked"],
    }
    if queue.alternate_exchange:
        values["altExchange"] = reference("exchange", queue.alternate_exchange)
    return ObjectValues(queue.name, values)


def exchanges(view: View) -> ObjectSteps:
    """Yield each exchange that the user sees."""
    for exchange in list(view.vhost.exchanges.values()):
        yield exchange_values(view, exchange)


def exchange_values(view: View, exchange: Exchange) -> ObjectValues | None:
    """Return the values of an exchange; None if the user does not see it."""
    if not view.sees(exchange.name):
        return None
    row = describe_exchange(view.vhost, exchange)
    values: dict[str, object] = {
        "vhostRef": reference("vhost", vhost_key(view)),
        "name": exchange.name,
        "type": row["type"],
        "durable": row["durable"],
        "autoDelete": row["auto_delete"],
        "arguments": row["arguments"],
        "bindingCount": row["bindings"] if exchange.name else len(view.vhost.queues),
    }
    if exchange.alternate:
        values["altExchange"] = reference("exchange", exchange.alternate)
    return ObjectValues(exchange.name, values)


def bindings(view: View) -> ObjectSteps:
    """Yield each binding of a queue that the user sees, also that to the default exchange."""
    for queue in live_queues(view.vhost):
        if is_internal(queue) or not view.sees(queue.access_name):
            yield None
            continue
        if view.sees(""):
            yield binding_values("", queue, queue.name, {})
        for binding in view.vhost.bindings_to(queue):
            exchange = binding.source.name
            if not view.sees(exchange):
                yield None
                continue
            arguments = table_as_json(binding.arguments or {})
            yield binding_values(exchange, queue, binding.routing_key, arguments)


def binding_values(
    exchange: str, queue: Queue, key: str, arguments: dict[str, Json]
) -> ObjectValues:
    """Return the values of a binding of a queue."""
    values: dict[str, object] = {
        "exchangeRef": reference("exchange", exchange),
        "queueRef": reference(QUEUE, queue.name),
        "bindingKey": key,
        "arguments": arguments,
    }
    return ObjectValues(f"{exchange},{queue.name},{key}", values)


def connections(view: View) -> ObjectSteps:
    """Yield each connection to the virtual host that the user sees."""
    for connection in visible_connections(view):
        if connection is None:
            yield None
            continue
        row = describe_connection(connection)
        properties = getattr(connection, "client_properties", None) or {}
        values = {
            "vhostRef": reference("vhost", vhost_key(view)),
            "address": (address := connection_address(view, connection)),
            "incoming": True,
            "SystemConnection": False,
            "authIdentity": row["user"],
            "saslMechanism": row["mechanism"],
            "protocol": f"AMQP {row['protocol']}",
            "bytesFromClient": row["bytes_received"],
            "bytesToClient": row["bytes_sent"],
        }
        for name, field in PROCESS.items():
            value = properties.get(field)
            if isinstance(value, str | int):
                values[name] = value
        yield ObjectValues(address, values, connection.transport.since_ms)


#: The client properties of Qpid's clients about their process, by their names in QMF.
PROCESS = {
    "remoteProcessName": "qpid.client_process",
    "remotePid": "qpid.client_pid",
    "remoteParentPid": "qpid.client_ppid",
}


def sessions(view: View) -> ObjectSteps:
    """Yield each session of 0-10, attached or waiting, and each channel of the other versions."""
    for connection in visible_connections(view):
        if connection is None:
            yield None
            continue
        connection_ref = reference("connection", connection_address(view, connection))
        if isinstance(connection, Connection010):
            for number, attached in list(connection.attached.items()):
                yield session_values(
                    view,
                    describe_session(connection, number, cast("Session010", attached)),
                    connection_ref,
                )
        else:
            for channel in cast("list[Channel]", list(connection.channels.values())):
                yield session_values(view, describe_channel(connection, channel), connection_ref)
    shared = view.broker.shared_0_10
    for session in cast("list[Session010]", shared.sessions.waiting):
        visible = session.vhost is view.vhost and view.is_own(session.user)
        yield session_values(view, describe_session(None, 0, session), None) if visible else None


def session_values(
    view: View, row: ChannelRow, connection_ref: dict[str, str] | None
) -> ObjectValues:
    """Return the values of a session or channel; ``connection_ref`` is None for a waiting one."""
    name = row["name"] or channel_name(row["connection"], row["number"])
    values: dict[str, object] = {
        "vhostRef": reference("vhost", vhost_key(view)),
        "name": name,
        "channelId": row["number"],
        "attached": connection_ref is not None,
        "unackedMessages": row["unacked"],
    }
    if connection_ref is not None:
        values["connectionRef"] = connection_ref
    return ObjectValues(name, values)


def subscriptions(view: View) -> ObjectSteps:
    """Yield each consumer of a connection that the user sees."""
    connections = view.broker.context.connections
    for queue in live_queues(view.vhost):
        for consumer in consumers_and_browsers(queue):
            owner = connections.get(consumer.publisher)
            user = getattr(owner, "user", None)
            if isinstance(consumer, RequestService) or not view.is_own(user):
                yield None
                continue
            row = describe_consumer(view.call, view.vhost.name, queue, consumer)
            session = row["session"] or channel_name(row["connection"], row["channel"])
            values = {
                "sessionRef": reference("session", session),
                "queueRef": reference(QUEUE, queue.access_name),
                "name": row["tag"],
                "exclusive": row["exclusive"],
                "browsing": row["browses"],
                "acknowledged": row["ack"],
                "creditMode": WINDOW if getattr(consumer, "is_window_mode", True) else CREDIT,
                "arguments": row["arguments"],
            }
            yield ObjectValues(f"{session},{queue.name},{row['tag']}", values)
        yield None


# --- Names --------------------------------------------------------------------------------------


def visible_connections(view: View) -> Iterator[ClientConnection | None]:
    """Yield the connections to the virtual host that the user sees; None for each other one."""
    for connection in list(client_connections(view.broker.context).values()):
        is_open = connection.transport is not None and not connection.transport.closed
        visible = is_open and connection.vhost is view.vhost and view.is_own(connection.user)
        yield connection if visible else None


def connection_address(view: View, connection: ClientConnection) -> str:
    """Return the key of a connection: the addresses of the broker and of the client."""
    name = view.broker.context.connection_events.names.get(connection.number, "")
    peer, _, own = name.partition(" -> ")
    return f"{own}-{peer}"


def channel_name(connection: int, number: int) -> str:
    """Return a name for a channel, made of the numbers of its connection and of itself."""
    return f"{connection}/{number}"


def vhost_key(view: View) -> str:
    """Return the key of the virtual host's object."""
    return f"{PACKAGE}:broker:{BROKER},{view.vhost.name}"


CLASSES: dict[str, Callable[[View], ObjectSteps]] = {
    "binding": bindings,
    "broker": brokers,
    "connection": connections,
    "exchange": exchanges,
    "memory": memories,
    "queue": queues,
    "session": sessions,
    "subscription": subscriptions,
    "vhost": vhosts,
}
