# SPDX-License-Identifier: Apache-2.0
"""A session of 0-10 reports completed commands before its error, however slow the disk is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_10 import (
    Command,
    DeliveryProperties,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
    SessionDetach,
    TxCommit,
    TxRollback,
    TxSelect,
    encode_headers,
)
from headrace.spec.reply_0_10 import ExecutionCode
from support.brokers.in_memory_broker import LateStore, Rig
from support.clients.version_clients import LocalTalk

if TYPE_CHECKING:
    from headrace.testing.raw_session import RawSession

PERSISTENT = encode_headers([DeliveryProperties(routing_key="q", delivery_mode=2)])
TO_QUEUE = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
TO_NOWHERE = MessageTransfer(destination="none", accept_mode=1, acquire_mode=0)


class Late:
    """A session whose broker's disk takes its time."""

    def __init__(self) -> None:
        self.store = LateStore()
        self.store.late = False
        self.rig = Rig(self.store)
        self.talk = LocalTalk(self.rig)
        self.session: RawSession = self.talk.attach()
        self.session.call(QueueDeclare(queue="q", durable=True))
        self.store.late = True

    def write(self, *commands: tuple[Command, bytes]) -> list[int]:
        """Send commands in one write; return their ids."""
        machine = self.session.machine
        numbers = [machine.send_command(one, header=header) for one, header in commands]
        self.talk.push()
        return numbers

    def sync(self) -> None:
        self.store.sync()
        self.rig.turn()
        self.talk.push()

    def is_complete(self, number: int) -> bool:
        sent = self.session.machine.sent.completed
        return bool(sent.has(sent.unwrap(number)))


@pytest.fixture
def late() -> Late:
    return Late()


WRONG: list[tuple[Command, bytes, ExecutionCode]] = [
    (TO_NOWHERE, PERSISTENT, ExecutionCode.NOT_FOUND),
    (TxSelect(), b"", ExecutionCode.ILLEGAL_STATE),
    (QueueDeclare(queue="none", passive=True), b"", ExecutionCode.NOT_FOUND),
]


@pytest.mark.parametrize(("command", "header", "code"), WRONG, ids=lambda v: getattr(v, "NAME", ""))
def test_an_error_comes_after_the_completion_of_the_commit_before_it(
    late: Late, command: Command, header: bytes, code: ExecutionCode
) -> None:
    *_, commit, _, after = late.write(
        (TxSelect(), b""),
        (TO_QUEUE, PERSISTENT),
        (TxCommit(), b""),
        (command, header),
        (QueueDeclare(queue="after", durable=True), b""),
    )
    session = late.session
    assert (session.exception, session.detached) == (None, None)
    assert not late.is_complete(commit)
    late.sync()
    assert late.is_complete(commit)
    assert (session.exception.error_code, session.exception.command_id) == (code, after - 1)
    assert session.detached == 0
    assert late.rig.vhost.queues["q"].ready_count == 1
    assert "after" not in late.rig.vhost.queues  # Nothing is done after the error.


def test_an_error_comes_after_the_acceptance_of_transfers(late: Late) -> None:
    late.store.appended += 1  # The disk owes what came before.
    explicit = MessageTransfer(destination="", accept_mode=0, acquire_mode=0)
    first, second, wrong = late.write(
        (explicit, PERSISTENT), (explicit, PERSISTENT), (TO_NOWHERE, PERSISTENT)
    )
    session = late.session
    assert (session.exception, session.commands) == (None, [])
    late.sync()
    (accepted,) = [one.command for one in session.commands]
    assert isinstance(accepted, MessageAccept)
    assert list(accepted.transfers or ()) == [(first, second)]
    assert late.is_complete(second)
    assert session.exception.command_id == wrong


def test_an_error_that_follows_nothing_unfinished_is_told_at_once(late: Late) -> None:
    late.write((TxRollback(), b""))
    assert late.session.exception.error_code == ExecutionCode.ILLEGAL_STATE
    assert late.session.detached == 0


def test_who_detaches_meanwhile_hears_the_error_at_once(late: Late) -> None:
    late.write((TxSelect(), b""), (TO_QUEUE, PERSISTENT), (TxCommit(), b""), (TxSelect(), b""))
    machine: Any = late.session.machine
    late.talk.machine.write_control(machine.channel, SessionDetach(name=machine.name))
    late.talk.push()
    assert late.session.exception.error_code == ExecutionCode.ILLEGAL_STATE
    assert late.session.detached == 0


def test_a_disk_that_takes_nothing_does_not_hide_an_error(late: Late) -> None:
    late.write((TxSelect(), b""), (TO_QUEUE, PERSISTENT), (TxCommit(), b""))
    late.store.full = True
    late.write((TO_NOWHERE, PERSISTENT))
    assert late.session.exception.error_code == ExecutionCode.NOT_FOUND


def test_a_lost_connection_forgets_the_error(late: Late) -> None:
    late.write((TxSelect(), b""), (TO_QUEUE, PERSISTENT), (TxCommit(), b""), (TxSelect(), b""))
    late.talk.there.end()
    late.sync()
    again = LocalTalk(late.rig).attach()  # The session is over: this is a new one.
    again.call(TxSelect())
