# SPDX-License-Identifier: Apache-2.0
"""The methods of objects that Qpid's tools and scripts call, with the effects of AMQP's methods.

The tables list methods by the class of their object. Other methods are answered with an exception:
redirecting queues, links and bridges to other brokers, setting the log's level, and stopping the
broker, which operators do on its machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from headrace.gateway.requests import messages
from headrace.gateway.v0_10.host import plain
from headrace.model.arguments.lifetime_policies import LifetimePlan
from headrace.model.exchange.binding import QUEUE
from headrace.model.operations.message_job import Job
from headrace.server.management.resources import connections
from headrace.server.qmf.objects import (
    OBJECTS_MAX,
    OPERATORS,
    View,
    connection_address,
    find,
    visible_connections,
)
from headrace.server.qmf.request import BAD_REQUEST
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.requests.requests import RequestAnswer, Steps
    from headrace.model.contents import Content
    from headrace.model.queue.queue import Queue
    from headrace.server.qmf.request import QmfRequest

UNKNOWN_OBJECT, UNKNOWN_METHOD = "unknown-object", "unknown-method"
NOT_IMPLEMENTED = "not-implemented"
CLOSED = "closed by an operator"
NAME_SIZE_MAX = 255  # Bytes of the name of a queue, an exchange, or a binding's key.
LEVELS = {logging.DEBUG: "debug+", logging.INFO: "info+", logging.WARNING: "warning+"}

Method = Callable[["QmfRequest"], "RequestAnswer | Steps"]


# --- Queues, exchanges, bindings ------------------------------------------------------------------


def create(call: QmfRequest) -> RequestAnswer:
    """Create a queue, an exchange or a binding."""
    return dispatch(call, CREATIONS, "made")


def delete(call: QmfRequest) -> RequestAnswer:
    """Delete a queue, an exchange or a binding."""
    return dispatch(call, DELETIONS, "deleted")


def dispatch(
    call: QmfRequest, kinds: Mapping[str, Callable[[QmfRequest], None]], verb: str
) -> RequestAnswer:
    """Call the function of ``kinds`` for the type of object that a request names."""
    kind = call.check_text("type", call.request.get("type"))
    handler = kinds.get(kind)
    if handler is None:
        call.refuse(NOT_IMPLEMENTED, f"objects of type '{kind}' are not {verb} here")
    handler(call)
    return {}


def read_name(call: QmfRequest) -> str:
    """Return the name of the object to create or delete."""
    name = call.check_text("name", call.request.get("name"), NAME_SIZE_MAX)
    if not name:
        call.refuse(BAD_REQUEST, "'name' is empty")
    return name


def pop_name(call: QmfRequest, values: dict[str, object], field: str) -> str | None:
    """Remove a field that holds a name, and return it; None if it is absent."""
    value = values.pop(field, None)
    return call.check_text(field, value, NAME_SIZE_MAX) if value is not None else None


def create_queue(call: QmfRequest) -> None:
    """Declare a queue; properties that are not flags become its arguments."""
    name, properties = read_name(call), dict(call.read_map("properties"))
    if name in call.vhost.queues:
        call.refuse("conflict", f"queue '{name}' in vhost '{call.vhost.name}' exists already")
    if call.read_flag(properties, "exclusive"):
        call.refuse(BAD_REQUEST, "a request cannot make an exclusive queue")
    durable = call.read_flag(properties, "durable")
    auto_delete = call.read_flag(properties, "auto-delete") or call.read_flag(
        properties, "autodelete"
    )
    alternate = pop_name(call, properties, "alternate-exchange") or ""
    plan = LifetimePlan(properties, False, auto_delete, f"queue '{name}'")
    if plan.owner_bound or plan.life.scope:
        call.refuse(BAD_REQUEST, "a request cannot bind a lifetime to its session or connection")
    with call.host() as host:
        host.declare_queue(
            name,
            durable=durable,
            auto_delete=auto_delete,
            arguments=plain(properties),
            alternate=alternate,
        )


def create_exchange(call: QmfRequest) -> None:
    """Declare an exchange; properties that are not flags become its arguments."""
    name, properties = read_name(call), dict(call.read_map("properties"))
    if name in call.vhost.exchanges:
        call.refuse("conflict", f"exchange '{name}' in vhost '{call.vhost.name}' exists already")
    kind = pop_name(call, properties, "exchange-type") or "topic"
    durable = call.read_flag(properties, "durable")
    auto_delete = call.read_flag(properties, "auto-delete") or call.read_flag(
        properties, "autodelete"
    )
    alternate = pop_name(call, properties, "alternate-exchange") or ""
    with call.host() as host:
        host.declare_exchange(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            arguments=plain(properties),
            alternate=alternate,
        )


def create_binding(call: QmfRequest) -> None:
    """Bind a queue."""
    exchange, queue, key = read_binding(call)
    with call.host() as host:
        host.bind(exchange, (QUEUE, queue), key, plain(call.read_map("properties")))


def delete_queue(call: QmfRequest) -> None:
    """Delete a queue."""
    options, name = dict(call.read_map("options")), read_name(call)
    if_unused, if_empty = call.read_flag(options, "if_unused"), call.read_flag(options, "if_empty")
    with call.host() as host:
        host.delete_queue(name, if_unused=if_unused, if_empty=if_empty)


def delete_exchange(call: QmfRequest) -> None:
    """Delete an exchange."""
    options, name = dict(call.read_map("options")), read_name(call)
    if_unused = call.read_flag(options, "if_unused")
    with call.host() as host:
        host.delete_exchange(name, if_unused=if_unused)


def delete_binding(call: QmfRequest) -> None:
    """Unbind a queue."""
    exchange, queue, key = read_binding(call)
    with call.host() as host:
        host.unbind(exchange, (QUEUE, queue), key, {})


def read_binding(call: QmfRequest) -> tuple[str, str, str]:
    """Return exchange, queue and key of a binding, from its name ``exchange/queue/key``.

    A name without a slash is a queue, and its binding that to the default exchange. Further slashes
    are part of the key.
    """
    name = call.check_text("name", call.request.get("name"))
    if "/" not in name:
        return "", name, name
    exchange, queue, key = (*name.split("/", 2), "")[:3]
    for part in (exchange, queue, key):
        call.check_text("name", part, NAME_SIZE_MAX)
    return exchange, queue, key


CREATIONS = {"queue": create_queue, "exchange": create_exchange, "binding": create_binding}
DELETIONS = {"queue": delete_queue, "exchange": delete_exchange, "binding": delete_binding}


# --- Messages -------------------------------------------------------------------------------------


def move(call: QmfRequest) -> Steps:
    """Move messages from one queue to another, oldest first."""
    call.request = {
        "from": call.request.get("srcQueue"),
        "to": call.request.get("destQueue"),
        **read_selection(call, "qty"),
    }
    answer = yield from in_slices(messages.move(call))
    return {"qty": answer["done"]}


def purge(call: QmfRequest) -> RequestAnswer | Steps:
    """Delete a number of messages of a queue, or all."""
    call.request = {"from": call.key, **read_selection(call, "request")}
    if call.request["count"] is None and not call.request["selector"]:
        with call.host() as host:
            host.purge_queue(call.key)
        return {}
    return wait_for_job(messages.delete(call))


def wait_for_job(outcome: RequestAnswer | Steps) -> Steps:
    """Run a job in steps to its end; return an empty answer."""
    yield from in_slices(outcome)
    return {}


def reroute(call: QmfRequest) -> Steps:
    """Move messages of a queue through an exchange, each to the one queue that it is routed to."""
    arguments = dict(call.request)
    call.request = {"from": call.key, **read_selection(call, "request")}
    call.allow("read", call.key)
    source = call.queue("from")
    exchange = source.alternate_exchange or ""
    if not call.read_flag(arguments, "useAltExchange"):
        exchange = call.check_text("exchange", arguments.get("exchange"), NAME_SIZE_MAX)
    elif not exchange:
        call.refuse("precondition", f"queue '{source.name}' has no alternate exchange")
    call.vhost.check_publishable(exchange)
    call.allow("write", exchange or "amq.default")
    count = cast("int | None", call.request["count"])
    job = Job(
        call.vhost,
        source,
        target=route_through(call, exchange, source),
        selector=messages.read_selector(call),
        count=count,
        maximum=call.vhost.jobs.messages_max,
    )
    job_fields = {"do": "move", "from": source.name, "to": "", "through": exchange}
    running = call.vhost.jobs.begin("", job_fields, job, call.connection.number)
    answer = yield from messages.follow(running)
    if answer["skipped"]:
        reasons = "; ".join(
            f"{number} {reason}"
            for reason, number in cast("Mapping[str, int]", answer["skipped"]).items()
        )
        call.refuse("precondition", f"{answer['done']} messages went, others stay: {reasons:.500}")
    return {}


def route_through(
    call: QmfRequest, exchange: str, source: Queue
) -> Callable[[Content], Queue | str]:
    """Return a function that returns the queue that an exchange routes a message to.

    For a message that must stay, the function returns the reason as text.
    """

    def find_target(content: Content) -> Queue | str:
        access, key = call.context.access, content.routing_key
        queues = call.vhost.route(exchange, key, lambda: content.headers).queues
        if len(queues) != 1 or queues[0] is source:
            return "lead to no other queue" if len(queues) < 2 else "lead to several queues"
        if access.topic_allowed(call.user, call.vhost.name, "write", exchange, key):
            queue: Queue = queues[0]
            return queue
        return "have topics that are refused"

    return find_target


def read_selection(call: QmfRequest, field: str) -> dict[str, object]:
    """Return the fields that choose messages: ``count``, None for all, and ``selector``."""
    count = call.number(field, 0)
    filter_fields = call.read_map("filter")
    selector = ""
    if filter_fields:
        params = filter_fields.get("filter_params")
        if filter_fields.get("filter_type") != "header_match_str" or not isinstance(params, dict):
            call.refuse(BAD_REQUEST, "'filter' is not a header_match_str")
        key = call.check_text("header_key", params.get("header_key"))
        value = call.check_text("header_value", params.get("header_value"))
        if '"' in key or not key:
            call.refuse(BAD_REQUEST, "'header_key' is empty, or has quotes")
        selector = "\"{}\" = '{}'".format(key, value.replace("'", "''"))
    return {"count": count or None, "selector": selector}


def in_slices(outcome: RequestAnswer | Steps) -> Steps:
    """Return the result of a job; one that is long runs in steps."""
    return outcome if isinstance(outcome, dict) else (yield from outcome)


# --- The broker and its connections ---------------------------------------------------------------


def echo(call: QmfRequest) -> RequestAnswer:
    """Return the arguments of the request."""
    return {name: call.request[name] for name in ("sequence", "body") if name in call.request}


def query_object(call: QmfRequest) -> Steps:
    """Return the object of a type and name."""
    view = View(call.broker, call.vhost, call.user, call.agent)
    kind = call.check_text("type", call.request.get("type"))
    name = call.check_text("name", call.request.get("name"))
    if kind == "binding":
        name = ",".join(read_binding(call))
    described = yield from find(view, kind, name)
    if described is None:
        call.refuse("not-found", f"there is no {kind} '{name}'")
    return {"results": described["_values"]}


def log_level(call: QmfRequest) -> RequestAnswer:
    """Return the log level."""
    require_operator(call)
    level = logging.getLogger().getEffectiveLevel()
    return {"level": LEVELS.get(level, "error+")}


def timestamps(call: QmfRequest) -> RequestAnswer:
    """Return whether messages are stamped with their time of arrival."""
    return {"receive": call.broker.settings.stamp_timestamp != "off"}


def close(call: QmfRequest) -> Steps:
    """Close a connection; only administrators may close those of other users."""
    view = View(call.broker, call.vhost, call.user, call.agent)
    for number, connection in enumerate(visible_connections(view), 1):
        if connection is not None and connection_address(view, connection) == call.key:
            break
        if number % OBJECTS_MAX == 0:
            yield
    else:
        call.refuse(UNKNOWN_OBJECT, f"No object found: '{call.key}'")
    if not call.user.same_as(connection.user) and ADMINISTRATOR not in call.user.tags:
        call.refuse("refused", f"user '{call.user.name}' is not an {ADMINISTRATOR}")
    connections.close_client(view.call, connection, CLOSED)
    return {}


def require_operator(call: QmfRequest) -> None:
    """Refuse the request of a user who is not an operator."""
    if not OPERATORS & set(call.user.tags):
        call.refuse("refused", f"user '{call.user.name}' has none of the tags of operators")


def refuse(call: QmfRequest) -> RequestAnswer:
    """Refuse a method that this broker knows and does not support."""
    call.refuse(NOT_IMPLEMENTED, f"{'.'.join(call.what)} is not served")


METHODS: dict[tuple[str, str], Method] = {
    ("broker", "create"): create,
    ("broker", "delete"): delete,
    ("broker", "query"): query_object,
    ("broker", "echo"): echo,
    ("broker", "queueMoveMessages"): move,
    ("broker", "getLogLevel"): log_level,
    ("broker", "getTimestampConfig"): timestamps,
    **{
        ("broker", name): refuse
        for name in (
            *("connect", "queueRedirect", "setLogLevel", "setTimestampConfig", "shutdown"),
            *("getLogHiresTimestamp", "setLogHiresTimestamp"),
        )
    },
    ("queue", "purge"): purge,
    ("queue", "reroute"): reroute,
    ("connection", "close"): close,
}

#: The methods that the audit log records.
CHANGING = frozenset(
    (
        *(("broker", name) for name in ("create", "delete", "queueMoveMessages")),
        *(("queue", name) for name in ("purge", "reroute")),
        ("connection", "close"),
    )
)
