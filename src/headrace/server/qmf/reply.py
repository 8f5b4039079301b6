# SPDX-License-Identifier: Apache-2.0
"""The answer to a request of QMF: one or several messages, published to its reply-to."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from headrace.gateway.requests.requests import (
    PendingAnswer,
    RequestAnswer,
    RequestService,
    make_message,
)
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

# The error codes of QMF; all other errors are EXCEPTION.
EXCEPTION = 7
ERRORS = {
    "unknown-object": 1,
    "unknown-method": 2,
    "not-implemented": 3,
    "bad-request": 4,
    "refused": 6,
}


class QmfReply(PendingAnswer):
    """The pending answer to a request of QMF."""

    def __init__(
        self,
        service: RequestService,
        agent: str,
        connection: ClientConnection,
        exchange: str,
        key: str,
        request_properties: BasicProperties,
    ) -> None:
        """``agent`` is the name of the agent, ``exchange`` and ``key`` are the reply-to."""
        PendingAnswer.__init__(self, service, key, request_properties.correlation_id)
        self.agent = agent
        assert connection.user is not None
        self.user = connection.user
        self.exchange = exchange
        self.request_properties = request_properties
        self._waiting: deque[Message] = deque()  # Messages that wait for the disk.

    def check(self) -> None:
        """Check that the user may publish to the reply-to.

        Raises:
            AccessRefused: the user may not.
            NotFound: the exchange does not exist.
        """
        access, vhost = self.service.context.access, self.service.vhost
        vhost.check_publishable(self.exchange)
        access.check(self.user, vhost.name, "write", "exchange", self.exchange or "amq.default")
        access.check_topic(self.user, vhost, "write", self.exchange, self.reply_to)

    def send(self, answer: RequestAnswer) -> None:
        """Send the answer, or the last part of it."""
        if "error" in answer:
            code = ERRORS.get(str(answer["code"]), EXCEPTION)
            values = {"error_code": code, "error_text": answer["error"]}
            self._send_message("_exception", MAP, encode_map({"_values": values}), "_values")
        elif "objects" in answer:
            self._send_objects(cast("list[QmfObject]", answer["objects"]), False)
        else:
            try:
                body = encode_map({"_arguments": answer["arguments"]})
            except (MalformedError, ValueError):
                body = encode_map({"_arguments": {}})
            self._send_message("_method_response", MAP, body, "_arguments")

    def send_part(self, objects: list[QmfObject]) -> None:
        """Send a part of the answer that further parts follow."""
        self._send_objects(objects, True)

    def on_released(self, token: int) -> None:
        """Publish the oldest waiting message, as the disk has synced the changes before it."""
        vhost, message = self.service.vhost, self._waiting.popleft()
        try:
            self.check()
            queues = vhost.route(self.exchange, self.reply_to, dict).queues
        except ModelError as error:
            log.warning("vhost %r: an answer by QMF is dropped: %s", vhost.name, error)
            return
        if self.exchange == TOPIC:
            queues = tuple(queue for queue in queues if self._is_bound_to_key(queue))
        if queues:
            vhost.deliver(message, queues, False)

    def _is_bound_to_key(self, queue: Queue) -> bool:
        """Return True if a binding of a queue has the answer's key itself, not a pattern."""
        vhost = self.service.vhost
        topic = vhost.exchanges.get(TOPIC)
        return any(
            binding.source is topic and binding.routing_key == self.reply_to
            for binding in vhost.bindings_to(queue)
        )

    def _send_objects(self, objects: list[QmfObject], partial: bool) -> None:
        """Send objects, in several messages if they do not fit in one."""
        try:
            body = encode_list(objects)
        except (MalformedError, ValueError):
            half = len(objects) // 2
            if half:
                self._send_objects(objects[:half], True)
                self._send_objects(objects[half:], partial)
                return
            objects[0]["_values"].pop("arguments", None)  # The arguments do not fit in a message.
            body = encode_list(objects)
        self._send_message("_query_response", LIST, body, "_data", partial)

    def _send_message(
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
