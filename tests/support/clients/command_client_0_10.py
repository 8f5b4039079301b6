# SPDX-License-Identifier: Apache-2.0
"""A 0-10 client that says exactly what a test tells it: a session of `headrace.testing`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.protocol.codec_0_10 import Command, QueueQuery
from headrace.testing.raw_session import RawSession, SessionClient


class Talk(SessionClient):
    """One connection to a broker on this machine, open unless it is told not to."""

    def __init__(
        self,
        port: int,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        insist: bool = False,
        opened: bool = True,
    ) -> None:
        super().__init__("127.0.0.1", port)
        self.user, self.password, self.vhost, self.insist = user, password, vhost, insist
        if opened:
            self.open()


@contextmanager
def talking(port: int, **how: Any) -> Iterator[RawSession]:
    """A session on a connection of its own."""
    talk = Talk(port, **how)
    try:
        yield talk.attach()
    finally:
        talk.close()


def depth(session: RawSession, queue: str) -> int:
    """Return the number of ready messages of a queue."""
    count = session.call(QueueQuery(queue=queue)).message_count
    assert isinstance(count, int)
    return count


def failed(session: RawSession, command: Command, code: int, field: str = "") -> None:
    """Expect the command to fail with the code, and one of its fields to be blamed."""
    failure = session.expect_exception(command)
    assert failure.error_code == code, failure
    assert (failure.class_code, failure.command_code) == command.CODE
    if field:
        names = [one for one in command.__slots__ if isinstance(one, str)]
        assert names[failure.field_index] == field
