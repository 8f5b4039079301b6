# SPDX-License-Identifier: Apache-2.0
"""The answer to a request by QMF: one message or several, to its reply-to."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from headrace.gateway.requests.requests import Answer, RequestAnswer, Service, make_message
from headrace.model.errors import ModelError
from headrace.protocol.codec_0_x import BasicProperties
from headrace.wire.errors import MalformedError
from headrace.wire.types_0_10 import encode_list, encode_map

if TYPE_CHECKING:
    from headrace.gateway.security.client_connection import ClientConnection
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.server.qmf.objects import QmfObject
    from headrace.wire.table import Table

log = logging.getLogger(__name__)

DIRECT, TOPIC = "qmf.default.direct", "qmf.default.topic"
MAP, LIST = "amqp/map", "amqp/list"

# How QMF numbers what goes wrong; everything else is EXCEPTION.
EXCEPTION = 7
ERRORS = {
    "unknown-object": 1,
    "unknown-method": 2,
    "not-implemented": 3,
    "bad-request": 4,
    "refused": 6,
}


class Reply(Answer):
    """A pending answer."""

    def __init__(
        self,
        service: Service,
        agent: str,
        connection: ClientConnection,
        exchange: str,
        key: str,
        asked: BasicProperties,
    ) -> None:
        """``agent`` is the agent's name."""
        Answer.__init__(self, service, key, asked.correlation_id)
        self.agent = agent
        assert connection.user is not None
        self.user = connection.user
        self.exchange = exchange
        self.asked = asked  # The properties of the request.
        self._waiting: deque[Message] = deque()  # For the disk.

    def check(self) -> None:
        """Refuse a reply-to where the user could not publish.

        Raises:
            AccessRefused: the user may not.
            NotFound: there is no such exchange.
        """
        access, vhost = self.service.context.access, self.service.vhost
        vhost.check_publishable(self.exchange)
        access.check(self.user, vhost.name, "write", "exchange", self.exchange or "amq.default")
        access.check_topic(self.user, vhost, "write", self.exchange, self.reply_to)

    def send(self, answer: RequestAnswer) -> None:
        """Send the answer, or its last part."""
        if "error" in answer:
            code = ERRORS.get(str(answer["code"]), EXCEPTION)
            values = {"error_code": code, "error_text": answer["error"]}
            self._say("_exception", MAP, encode_map({"_values": values}), "_values")
        elif "objects" in answer:
            self._say_objects(cast("list[QmfObject]", answer["objects"]), False)
        else:
            try:
                body = encode_map({"_arguments": answer["arguments"]})
            except (MalformedError, ValueError):
                body = encode_map({"_arguments": {}})
            self._say("_method_response", MAP, body, "_arguments")

    def part(self, objects: list[QmfObject]) -> None:
        """Send a part of the answer; more follow."""
        self._say_objects(objects, True)

    def released(self, token: int) -> None:
        """Send what was waiting longest."""
        vhost, message = self.service.vhost, self._waiting.popleft()
        try:
            self.check()
            queues = vhost.route(self.exchange, self.reply_to, dict).queues
        except ModelError as error:
            log.warning("vhost %r: an answer by QMF goes nowhere: %s", vhost.name, error)
            return
        if self.exchange == TOPIC:
            queues = tuple(queue for queue in queues if self._is_meant(queue))
        if queues:
            vhost.deliver(message, queues, False)

    # --- Inside -------------------------------------------------------------------------------

    def _is_meant(self, queue: Queue) -> bool:
        """Return True if a queue is bound to the answer's very key, not to a pattern."""
        vhost = self.service.vhost
        topic = vhost.exchanges.get(TOPIC)
        return any(
            binding.source is topic and binding.routing_key == self.reply_to
            for binding in vhost.bindings_to(queue)
        )

    def _say_objects(self, objects: list[QmfObject], partial: bool) -> None:
        """Send objects in as many messages as they need."""
        try:
            body = encode_list(objects)
        except (MalformedError, ValueError):
            half = len(objects) // 2
            if half:
                self._say_objects(objects[:half], True)
                self._say_objects(objects[half:], partial)
                return
            objects[0]["_values"].pop("arguments", None)  # Of which there are too many.
            body = encode_list(objects)
        self._say("_query_response", LIST, body, "_data", partial)

    def _say(
        self, opcode: str, kind: str, body: bytes, content: str, partial: bool = False
    ) -> None:
        headers: Table = {
            "method": "response",
            "qmf.opcode": opcode,
            "qmf.agent": self.agent,
            "qmf.content": content,
        }
        if partial:
            headers["partial"] = True
        properties = BasicProperties(
            content_type=kind, headers=headers, correlation_id=self.correlation_id, app_id="qmf2"
        )
        self._waiting.append(make_message(self.exchange, self.reply_to, properties, body))
        self.service.context.pending_confirms(self.service.vhost.name).join(self, 0)
