# SPDX-License-Identifier: Apache-2.0
"""Answers of AMQP 0-8, 0-9 and 0-9-1 leave a channel in the order of its requests.

An answer that has to wait, for the disk as a rule, is held. Every later answer of the channel, its
``channel.close`` included, queues behind it, and so do ``connection.close`` and its ``close-ok``.
Of the requests that come meanwhile, those in :data:`PIPELINED` are handled at once and have their
answers queued, so that many of them share one sync of the disk; at any other request the channel
pauses, since what it does must not be seen before the answer to an earlier one: a consumer's first
delivery, the messages that a commit returns. Publishes and acks have no answer and do not wait.
"""

from collections import deque
from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_x.channel import OPEN as C_OPEN
    from headrace.protocol.v0_x.channel import Channel
    from headrace.protocol.v0_x.content_frames import Contents

from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import FOR_ANSWERS
from headrace.protocol.v0_x.frames import FRAME_METHOD
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.methods import METHODS
from headrace.spec.tables import Version

ANSWERS_MAX = 1024  # Answers that one channel may owe; beyond it the channel pauses.

PIPELINED = frozenset(
    (
        "exchange.declare",
        "exchange.delete",
        "exchange.bind",
        "exchange.unbind",
        "exchange.bound",
        "queue.declare",
        "queue.delete",
        "queue.bind",
        "queue.unbind",
        "queue.purge",
        "message.transfer",
        "message.open",
        "message.append",
        "message.close",
    )
)
REQUESTS: dict[Version, dict[int, bool]] = {  # By method id: whether it is in PIPELINED.
    version: {
        method.id[0] << 16 | method.id[1]: method.name in PIPELINED
        for method in METHODS
        if version in method.versions and method.replies
    }
    for version in {version for method in METHODS for version in method.versions}
}


class HeldAnswer:
    """One answer that waits for something; :meth:`released` or :meth:`refuse` ends that, once."""

    __slots__ = ("channel", "connection", "error", "payload", "ready", "request")

    def __init__(self, connection: Any, channel: Any, payload: bytes, request: int) -> None:
        self.connection = connection
        self.channel = channel
        self.payload = payload
        self.request = request  # What it answers, class id << 16 | method id.
        self.ready = False
        self.error: AmqpError | None = None

    def released(self, token: int) -> None:
        """Send it, once those before it are sent; ``token`` is the confirm line's."""
        self.ready = True
        self.connection.send_answers(self.channel)

    def refuse(self, error: AmqpError) -> None:
        """Close what the error says instead, in the answer's place."""
        self.error = error
        self.released(0)


class Answers(Contents):
    """A connection, as far as its answers keep their order."""

    def __init__(
        self, pool: BufferPool, role: Role, version: Version, frame_max: int, body_max: int
    ) -> None:
        Contents.__init__(self, pool, role, version, frame_max, body_max)
        self.owing = 0  # Channels that owe answers.

    def say(self, channel: Channel, payload: bytes) -> None:
        """Send an encoded method after all answers that the channel owes."""
        if channel.answers is None:
            self.write_frame(FRAME_METHOD, channel.number, payload)
        else:
            channel.answers.append(payload)

    def hold_answer(self, channel: Channel, payload: bytes) -> HeldAnswer:
        """Owe an encoded method as the answer to the request that is being handled."""
        if channel.answers is None:
            channel.answers = deque()
            self.owing += 1
        held = HeldAnswer(self, channel, payload, self.current)
        channel.answers.append(held)
        return held

    def must_pause(self, channel: Channel, method: int) -> bool:
        """Return True if a request on a channel that owes answers has to wait for them."""
        if channel.state != C_OPEN or channel.expects_content():
            return False
        pipelined = REQUESTS[self.version].get(method)
        if pipelined is None:
            return False
        return not pipelined or len(channel.answers) >= ANSWERS_MAX

    def send_answers(self, channel: Channel) -> None:
        """Send the answers of a channel up to the first that is still held."""
        answers = channel.answers
        if answers is None or self.ended or channel.sends_body():
            return
        while answers:
            answer = answers[0]
            if isinstance(answer, HeldAnswer):
                if not answer.ready:
                    return
                if answer.error is not None:
                    self.forget_answers(channel)
                    self.refuse_request(channel, answer.error, answer.request)
                    return
                answer = answer.payload
            answers.popleft()
            self.write_frame(FRAME_METHOD, channel.number, answer)
        self.forget_answers(channel)
        self.resume(channel, FOR_ANSWERS)

    def forget_answers(self, channel: Channel) -> None:
        """The channel owes nothing more."""
        if channel.answers is not None:
            channel.answers = None
            self.owing -= 1
            if not self.owing:
                self.part()

    def refuse_request(self, channel: Channel, error: AmqpError, request: int) -> None:
        """The answer to an earlier request is an error."""

    def resume(self, channel: Channel, reason: int) -> None:
        """One reason less for a channel to be busy."""

    def part(self) -> None:
        """No answers are owed: say the last words that waited for them."""
