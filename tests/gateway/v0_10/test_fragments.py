# SPDX-License-Identifier: Apache-2.0
"""Interrupted messages: whoever resumes them and however, none is lost or counted twice."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.gateway.v0_10.session.fragments import Fragments
from headrace.gateway.v0_10.session.transfer_header import TransferHeader
from headrace.model.counters import Counters
from headrace.model.scheduler import Scheduler

KEPT_MS = 600_000  # The longest time that an interrupted message is kept.


class Sender:
    """A session that sends fragments."""

    def __init__(self, fragments: Fragments) -> None:
        self.fragments: Any = fragments
        self.connection = SimpleNamespace(body_max=1 << 20)
        self.user = SimpleNamespace(name="u")
        self.vhost = SimpleNamespace(name="v", scheduler=Scheduler())
        self.on_end: list[Any] = []

    def send(self, size: int, resume_id: bytes = b"", *, first: bool, last: bool) -> Any:
        header = TransferHeader()
        header.first, header.last, header.resume_id = first, last, resume_id
        if not first:
            assert self.fragments.first_header(self, header).first
        return self.fragments.add(self, header, bytes(size), None)

    def resume(self, resume_id: bytes) -> int:
        size: int = self.fragments.resume(self, resume_id)
        return size

    def end(self) -> None:
        for callback in self.on_end:
            callback()


@pytest.fixture
def fragments() -> Fragments:
    return Fragments(Counters(), 1 << 20)


def interrupt(fragments: Fragments, size: int, resume_id: bytes) -> None:
    """Begin a message, and end its session."""
    sender = Sender(fragments)
    sender.send(size, resume_id, first=True, last=False)
    sender.end()


def test_a_resumed_message_that_is_not_continued_can_be_resumed_again(fragments: Fragments) -> None:
    interrupt(fragments, 4, b"a")
    sender = Sender(fragments)
    sender.send(1, first=True, last=False)
    sender.send(1, first=False, last=True)
    assert sender.resume(b"a") == sender.resume(b"a") == 4
    assert sender.resume(b"unknown") == 0
    sender.end()
    assert fragments.size == fragments.counters.memory_used == 4
    other = Sender(fragments)
    assert other.resume(b"a") == 4
    assert other.send(2, first=False, last=True) == ((bytes(4), bytes(2)), 6)
    assert fragments.size == fragments.counters.memory_used == 0


def test_the_last_of_two_resumed_messages_is_continued(fragments: Fragments) -> None:
    interrupt(fragments, 4, b"a")
    interrupt(fragments, 6, b"b")
    sender = Sender(fragments)
    assert sender.resume(b"a") == 4
    assert sender.resume(b"b") == 6
    assert sender.send(1, first=False, last=True) == ((bytes(6), bytes(1)), 7)
    assert Sender(fragments).resume(b"a") == 4
    assert fragments.size == fragments.counters.memory_used == 4


def test_of_two_interrupted_messages_with_one_name_the_last_is_kept(fragments: Fragments) -> None:
    first, second = Sender(fragments), Sender(fragments)
    first.send(4, b"a", first=True, last=False)
    second.send(6, b"a", first=True, last=False)
    first.end()
    second.end()
    assert fragments.size == fragments.counters.memory_used == 6
    assert Sender(fragments).resume(b"a") == 6


def test_an_interrupted_message_is_forgotten_in_time(fragments: Fragments) -> None:
    first, second = Sender(fragments), Sender(fragments)
    first.send(4, b"a", first=True, last=False)
    fragments.counters.now_ms = 1000
    second.send(6, b"b", first=True, last=False)
    first.end()
    second.end()
    resumer = Sender(fragments)
    assert resumer.resume(b"b") == 6
    for sender in (first, second):
        sender.vhost.scheduler.run(KEPT_MS)
    assert fragments.size == fragments.counters.memory_used == 6
    fragments.counters.now_ms = KEPT_MS + 1000
    second.vhost.scheduler.run(KEPT_MS + 1000)
    assert fragments.size == fragments.counters.memory_used == 6
    resumer.end()
    resumer.vhost.scheduler.run(KEPT_MS + 1000)
    assert fragments.size == fragments.counters.memory_used == 0


def test_a_session_does_not_grow_with_its_messages(fragments: Fragments) -> None:
    sender = Sender(fragments)
    for number in range(10):
        interrupt(fragments, 1, b"%d" % number)
        sender.resume(b"%d" % number)
        sender.send(1, first=False, last=True)
        sender.send(1, first=True, last=False)
        sender.send(1, first=False, last=True)
    assert len(sender.on_end) == 1
