# SPDX-License-Identifier: Apache-2.0
"""The agent of one virtual host: it answers requests of QMF version 2.

A request is a message to the exchange ``qmf.default.direct`` with the key ``broker``. The header
``qmf.opcode`` has its kind, and the body is a map of AMQP 0-10::

    _query_request    {"_what": "OBJECT", "_schema_id": {"_class_name": "queue"}}
                      {"_what": "OBJECT", "_object_id": {"_object_name": "<package>:queue:<name>"}}
    _method_request   {"_object_id": {...}, "_method_name": "create", "_arguments": {...}}

The answer is published to the reply-to, if the user may publish there: ``_query_response``, a list
of objects, in several messages if they are many; ``_method_response``, a map of results;
``_exception``, a map with ``error_code`` and ``error_text``.

The exchanges ``qmf.default.direct`` and ``qmf.default.topic`` exist as long as the agent, and
clients cannot delete them. Clients may use them for other messages, but only the agent receives its
requests, and answers reach no queue that is bound by a pattern.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.neutral import parse_reply_to
from headrace.gateway.requests.requests import RequestCall, RequestService, Steps, failure
from headrace.model.errors import AccessRefused, ModelError
from headrace.model.exchange.binding import QUEUE, Binding
from headrace.model.exchange.direct import DirectExchange
from headrace.server.qmf.events import EventTopic
from headrace.server.qmf.methods import CHANGING, METHODS, UNKNOWN_METHOD, UNKNOWN_OBJECT
from headrace.server.qmf.objects import CLASSES, PACKAGE, View, chunks, class_and_key, find
from headrace.server.qmf.reply import DIRECT, TOPIC, QmfReply
from headrace.server.qmf.request import BAD_REQUEST, QmfRequest, decode_texts
from headrace.wire.errors import MalformedError
from headrace.wire.types_0_10 import decode_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.requests.requests import PendingAnswer, RequestAnswer
    from headrace.gateway.security.client_connection import ClientConnection
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol.codec_0_x import BasicProperties
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.qmf.objects import QmfObject

log = logging.getLogger(__name__)

SERVICE = "amq.headrace.qmf"  # The queue of requests.
KEY = "broker"  # The routing key with which that queue is bound.
REQUEST_SIZE_MAX = 1 << 16  # Bytes of a request.
AT_ONCE_MAX = 16  # Requests that begin in one turn, or run in steps.
NAME_SIZE_MAX = 1024  # Bytes of the name of an object.
OPCODES_SHOWN_MAX = 40  # Characters of an unknown opcode in an error.


class AgentDirect(DirectExchange):
    """The exchange for requests; only the agent's queue can be bound with its key."""

    fixed = True

    def __init__(self) -> None:
        super().__init__(DIRECT)
        self.agent: Agent | None = None

    def bind(self, binding: Binding) -> bool:
        agent = self.agent
        is_agents = agent is None or binding.destination is agent.queue
        if binding.routing_key == KEY and not is_agents:
            raise AccessRefused(f"the key '{KEY}' of exchange '{DIRECT}' is the broker's own")
        return super().bind(binding)


class Agent(RequestService):
    """The agent of one virtual host, which serves requests of QMF."""

    def __init__(self, broker: ManagedBroker, vhost: VirtualHost) -> None:
        """Declare the exchanges in a virtual host that is recovered."""
        RequestService.__init__(
            self, broker.context, vhost, SERVICE, {}, bytes_max=REQUEST_SIZE_MAX
        )
        self.broker = broker
        self.name = f"apache.org:qpidd:{vhost.name}"
        for name in (DIRECT, TOPIC):
            if name in vhost.exchanges:
                log.warning("vhost %r: exchange %r is now the one of QMF's agent", vhost.name, name)
                vhost.delete_exchange(name)
        direct = AgentDirect()
        self.topic = EventTopic(vhost, broker.events, self.name)
        vhost.exchanges[DIRECT], vhost.exchanges[TOPIC] = direct, self.topic
        vhost.bind(DIRECT, (QUEUE, SERVICE), KEY, owner=self)
        direct.agent = self

    def has_room(self) -> bool:
        return len(self.turn_requests) + self.sliced_count < AT_ONCE_MAX

    def close(self) -> None:
        """Stop publishing events, as the virtual host stops."""
        self.topic.close()

    # --- Requests -------------------------------------------------------------------------------

    def make_answer(
        self, connection: ClientConnection, properties: BasicProperties
    ) -> QmfReply | None:
        exchange, key = parse_reply_to((properties.reply_to or "").encode())
        reply = QmfReply(self, self.name, connection, exchange.decode(), key.decode(), properties)
        try:
            reply.check()
        except (ModelError, UnicodeDecodeError) as error:
            log.warning("connection %d: an answer of QMF is dropped: %s", connection.number, error)
            return None
        return reply

    def handle(self, connection: ClientConnection, body: bytes, answer: PendingAnswer) -> None:
        assert isinstance(answer, QmfReply)
        opcode = (answer.request_properties.headers or {}).get("qmf.opcode")
        try:
            request, end = decode_map(body)
            if end != len(body):
                raise MalformedError(f"{len(body) - end} bytes follow the map")
        except MalformedError as error:
            answer.send(failure(BAD_REQUEST, f"the body is not a map of AMQP 0-10: {error}"))
            return
        fields = cast("dict[str, object]", decode_texts(request))
        call = QmfRequest(self.broker, self.vhost, connection, fields, agent=self.name)
        handler = OPCODES.get(opcode) if isinstance(opcode, str) else None
        if handler is None:
            shown = f"{opcode!r:.{OPCODES_SHOWN_MAX}}"
            answer.send(failure(BAD_REQUEST, f"there is no qmf.opcode {shown}"))
            return
        self.start_work(call, partial(self.run_as_user, handler, call, answer), answer)

    def run_as_user(
        self,
        handler: Callable[[QmfRequest, QmfReply], RequestAnswer | Steps],
        call: QmfRequest,
        answer: QmfReply,
    ) -> RequestAnswer | Steps:
        """Run a request; the broker's events name its user as the actor."""
        events = self.context.events
        events.actor = call.user
        try:
            return handler(call, answer)
        finally:
            events.actor = None

    def audit(self, call: RequestCall, outcome: RequestAnswer) -> None:
        assert isinstance(call, QmfRequest)
        if call.what in CHANGING:
            operation = f"qmf {'.'.join(call.what)}"
            self.record(
                call, {"do": operation, "object": call.key, "arguments": call.request}, outcome
            )


def serve(broker: ManagedBroker, vhost: VirtualHost) -> Agent | None:
    """Serve QMF in a virtual host; return None if the setting ``qmf`` is off."""
    return Agent(broker, vhost) if broker.settings.qmf else None


# --- Opcodes ------------------------------------------------------------------------------------


def query(call: QmfRequest, reply: QmfReply) -> Steps:
    """Answer with all objects of a class, or with the object of a name."""
    if call.request.get("_what", "OBJECT") != "OBJECT":
        call.refuse(BAD_REQUEST, "'_what' is to be OBJECT")
    view = View(call.broker, call.vhost, call.user, call.agent)
    object_name = call.read_map("_object_id").get("_object_name")
    if object_name is not None:
        kind, key = class_and_key(call.check_text("_object_name", object_name, NAME_SIZE_MAX))
        described = yield from find(view, kind, key)
        return {"objects": [] if described is None else [described]}
    schema = call.read_map("_schema_id")
    kind = call.check_text("_class_name", schema.get("_class_name"), NAME_SIZE_MAX)
    if schema.get("_package_name", PACKAGE) != PACKAGE or kind not in CLASSES:
        return {"objects": []}
    last_chunk: list[QmfObject] | None = None
    for chunk in chunks(view, kind):
        if is_crowded(call.vhost):
            call.refuse("limit", "memory or disk is short: lists are not sent")
        if chunk is not None:
            if last_chunk is not None:
                reply.send_part(last_chunk)
            last_chunk = chunk
        yield
    return {"objects": last_chunk or []}


def method(call: QmfRequest, _: QmfReply) -> RequestAnswer | Steps:
    """Call a method of an object."""
    name = call.check_text("_method_name", call.request.get("_method_name"), NAME_SIZE_MAX)
    target = call.read_map("_object_id").get("_object_name")
    kind, key = class_and_key(call.check_text("_object_name", target, NAME_SIZE_MAX))
    handler = METHODS.get((kind, name))
    if handler is None:
        if kind not in CLASSES:
            call.refuse(UNKNOWN_OBJECT, f"No object found: '{target}'")
        call.refuse(UNKNOWN_METHOD, f"objects of class '{kind}' have no method '{name}' here")
    reason = call.context.access.audit.refusal() if (kind, name) in CHANGING else ""
    if reason:
        call.refuse("refused", f"request {reason}")
    call.request = call.read_map("_arguments")
    call.what, call.key = (kind, name), key
    outcome = handler(call)
    if isinstance(outcome, dict):
        return {"arguments": outcome}
    return run_in_steps(outcome)


def run_in_steps(steps: Steps) -> Steps:
    """Run a long method in steps; return the answer with its result."""
    return {"arguments": (yield from steps)}


def is_crowded(vhost: VirtualHost) -> bool:
    """Return True if memory or disk is low, so that no large answer must be made."""
    return bool(vhost.counters.is_memory_short() or vhost.store.full)


OPCODES: dict[str, Callable[[QmfRequest, QmfReply], RequestAnswer | Steps]] = {
    "_query_request": query,
    "_method_request": method,
}
