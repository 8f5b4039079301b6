# SPDX-License-Identifier: Apache-2.0
"""The order of answers of AMQP 0-8, 0-9 and 0-9-1: the order of a channel's requests.

An answer that has to wait, mostly for the disk, is deferred. Every later answer of the channel,
``channel.close`` included, queues behind it, and so do ``connection.close`` and its ``close-ok``.
Until then, requests in :data:`PIPELINED` are handled at once and their answers queued, so that many
share one sync of the disk. At any other request the channel pauses, since its effects
(a consumer's first delivery, the messages that a commit returns) must not precede an earlier
answer. Publishes and acks have no answer and do not wait.
"""

from collections import deque

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.v0_x.channel import OPEN as C_OPEN
    from headrace.protocol.v0_x.channel import Channel

from headrace.protocol.v0_x.channel import DeferredAnswer
from headrace.protocol.v0_x.frames import FRAME_METHOD
from headrace.spec.methods import METHODS
from headrace.spec.tables import Version

ANSWERS_MAX = 1024  # Queued answers of one channel; beyond it the channel pauses.

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
REQUESTS: dict[Version, dict[int, bool]] = {  # True for a method of PIPELINED, by method id.
    version: {
        method.id[0] << 16 | method.id[1]: method.name in PIPELINED
        for method in METHODS
        if version in method.versions and method.replies
    }
    for version in {version for method in METHODS for version in method.versions}
}


class Answers:
    """Keeps the answers of one connection in the order of the requests."""

    def __init__(self, output: Endpoint) -> None:
        self.output = output
        self.deferring = 0  # Channels with deferred answers.

    def send_in_order(self, channel: Channel, payload: bytes) -> None:
        """Send an encoded method after all deferred answers of the channel."""
        if channel.answers is None:
            self.output.write_frame(FRAME_METHOD, channel.number, payload)
        else:
            channel.answers.append(payload)

    def defer(self, deferred: DeferredAnswer) -> None:
        """Defer an answer; later ones of its channel wait for it."""
        channel = deferred.channel
        if channel.answers is None:
            channel.answers = deque()
            self.deferring += 1
        channel.answers.append(deferred)

    def must_pause(self, channel: Channel, version: Version, method: int) -> bool:
        """Return True if a request has to wait for the deferred answers of its channel."""
        if channel.state != C_OPEN or channel.expects_content():
            return False
        pipelined = REQUESTS[version].get(method)
        if pipelined is None:
            return False
        count = 0 if channel.answers is None else len(channel.answers)
        return not pipelined or count >= ANSWERS_MAX

    def send(self, channel: Channel) -> DeferredAnswer | None:
        """Send the answers of a channel up to the first that is still deferred.

        Returns:
            The first answer if it is refused, which is not sent; else None.
        """
        answers = channel.answers
        while answers:
            answer = answers[0]
            if isinstance(answer, DeferredAnswer):
                if not answer.ready:
                    return None
                if answer.error is not None:
                    return answer
                answer = answer.payload
            answers.popleft()
            self.output.write_frame(FRAME_METHOD, channel.number, answer)
        return None

    def drop(self, channel: Channel) -> bool:
        """Drop the answers of a channel; return True if no other channel has deferred ones."""
        if channel.answers is None:
            return False
        channel.answers = None
        self.deferring -= 1
        return self.deferring == 0
