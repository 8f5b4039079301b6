# SPDX-License-Identifier: Apache-2.0
"""An operator's session in a virtual host, the counterpart of a client's connection and channel.

An operator changes objects, runs requests and publishes through the code that serves clients, for
publishing that of 0-9-1. So the rules for clients apply to operators, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from headrace.gateway.conversion.headers import shortstr
from headrace.gateway.requests.requests import RequestCall, RequestRefused
from headrace.gateway.security.authorized_host import AuthorizedHost, Dialect
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.gateway.security.user import User
from headrace.gateway.v0_x.channel.channel import Channel
from headrace.gateway.v0_x.connection.connection import GatewayConnection
from headrace.gateway.v0_x.connection.slow_path import MANDATORY
from headrace.model.operations.jobs import OPERATOR
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, make_frame
from headrace.server.management.call import OperationRefused
from headrace.spec.tables import V0_9_1
from headrace.wire.properties import CLASS_BASIC

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from headrace.gateway.requests.requests import Handler, RequestAnswer
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine

FRAME_SIZE = 131_072 - 8  # Bytes of a body frame's payload; consumers get their own frame size.
IMPERSONATOR = "impersonator"  # The tag of users that may publish as another user.


class EveryGrant:
    """The rights of the system user, who has no account and may do everything."""

    def may_open(self, vhost: str) -> bool:
        return True

    def allowed(self, vhost: str, permission: str, name: str) -> bool:
        return True

    def topic_allowed(self, vhost: str, permission: str, exchange: str, routing_key: str) -> bool:
        return True

    def every_topic_allowed(self, vhost: str, permission: str, exchange: str) -> bool:
        return True


def acting_user(call: Call) -> User:
    """Return the user of a request; for the system user, one with all rights."""
    if call.user is not None:
        return call.user
    name = call.operator if call.actor is None else call.actor.name
    access = call.broker.access
    return User(access, name, (IMPERSONATOR,), RemotePeer(), grants=EveryGrant())


def authorized_host(call: Call) -> AuthorizedHost:
    """Return the virtual host of a request, with the rights of its user and the rules of 0-9-1."""
    return AuthorizedHost(
        call.broker.context, call.vhost(), acting_user(call), call, Dialect.V0_9_1
    )


class OperatorRequest(RequestCall):
    """A request of an operator; the management socket audits its refusal."""

    def refuse(self, code: str, text: str) -> NoReturn:
        raise RequestRefused(code, text)


class OperatorSession:
    """One operator in one virtual host, for the duration of a call."""

    number = OPERATOR

    def __init__(self, call: Call) -> None:
        self.context = call.broker.context
        self.vhost: VirtualHost = call.vhost()
        self.user: User = acting_user(call)

    def request(self, fields: dict[str, object]) -> OperatorRequest:
        """Return a request of this operator."""
        return OperatorRequest(self.context, self.vhost, self, fields)

    def publish(
        self, exchange: str, routing_key: str, properties: BasicProperties, body: bytes
    ) -> tuple[bool, int]:
        """Publish a message.

        Return True if it was routed to a queue, and the number of queues that refused it.

        Raises:
            AmqpError: the exchange does not exist, or a property or header is refused.
            AccessRefused: the user may not write to the exchange or the topic.
            ValueError, TypeError, MalformedError: the properties have no encoding.
        """
        header = encode_content_header(V0_9_1, CLASS_BASIC, len(body), properties)
        starts = range(0, len(body), FRAME_SIZE)
        payloads = [body[start : start + FRAME_SIZE] for start in starts]
        frames = b"".join(make_frame(FRAME_BODY, 0, payload) for payload in payloads)
        address = shortstr(exchange) + shortstr(routing_key)
        data = (
            address + bytes((MANDATORY, FRAME_END)) + make_frame(FRAME_HEADER, 0, header) + frames
        )

        connection = GatewayConnection(self.context, self.number, True)
        connection.user = self.user
        name = self.vhost.name
        connection.open_host(
            self.vhost, self.context.stores[name], self.context.pending_confirms(name)
        )
        channel = Channel(0, connection)
        refused = connection.publish_receiver.publish_content(
            channel, data, len(address), len(body), None
        )
        connection.drop()  # Discards the output: a returned message.
        tally = channel.update_tally()
        self.context.add_ended_channel(self.vhost, V0_9_1.label, tally)
        return not tally.return_unroutable, refused


def attempt(
    step: Callable[[], RequestAnswer | Generator[None, None, RequestAnswer] | None],
) -> RequestAnswer:
    """Run a step of a request; return its answer, or {} if it is not complete.

    Raises:
        OperationRefused: the request is refused.
    """
    try:
        answer = step()
    except RequestRefused as error:
        raise OperationRefused(error.code, error.text) from None
    return answer if isinstance(answer, dict) else {}


async def run_request(call: Call, handler: Handler, **fields: object) -> JsonLine:
    """Run a request, a long one in slices; return its answer once its changes are durable."""
    request = OperatorSession(call).request(fields)
    call.broker.events.check_auditable()
    try:
        with call.acting():
            outcome = handler(request)
    except RequestRefused as error:
        raise OperationRefused(error.code, error.text) from None
    answer = outcome if isinstance(outcome, dict) else await finish(call, outcome)
    if not await call.durable(request.vhost.name):
        call.refuse("precondition", "the journal cannot be written")
    return answer


async def finish(
    call: Call, steps: Generator[None, None, RequestAnswer], pause_s: float = 0.0
) -> RequestAnswer:
    """Run the remaining slices of a request, ``pause_s`` apart; return its answer.

    Raises:
        OperationRefused: the request is refused.
    """
    while True:
        with call.acting():
            try:
                attempt(lambda: next(steps))
            except StopIteration as end:
                return dict(end.value)
        await asyncio.sleep(pause_s)
