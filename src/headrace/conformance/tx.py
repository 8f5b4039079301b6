# SPDX-License-Identifier: Apache-2.0
"""Checks of the tx class."""

from __future__ import annotations

from headrace.conformance.check import Site, check
from headrace.conformance.peer import must
from headrace.protocol.codec_0_x import (
    BasicAck,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)


@check("0-9-1/s119", "0-9-1/tx#01")
def a_transaction(site: Site) -> None:
    """A commit applies all publishes and acks of a transaction, a rollback none."""
    peer, other = site.peer(), site.peer()
    queue = site.queue()
    other.declare(queue)
    other.publish(queue, b"old")
    peer.call(TxSelect(), TxSelectOk)
    must(peer.get(queue, no_ack=False) == b"old", "a message to acknowledge")
    peer.send(BasicAck(delivery_tag=1))
    peer.publish(queue, b"new")
    peer.call(TxRollback(), TxRollbackOk)
    must(other.holds(queue, 0), "nothing is published by what was rolled back")
    peer.send(BasicAck(delivery_tag=1))  # The rollback undid the first one.
    peer.publish(queue, b"1", b"2")
    must(other.holds(queue, 0), "nothing is published before the commit")
    peer.call(TxCommit(), TxCommitOk)
    must(other.holds(queue, 2), "both messages at the commit")
    peer.close()
    must(other.bodies(queue) == [b"1", b"2"], "in order, and the acknowledged one is gone")


@check("0-9-1/tx.commit#01")
def a_commit_without_select(site: Site) -> None:
    """tx.commit on a channel without transactions closes it with 406."""
    site.peer().expect_refusal(TxCommit(), 406)


@check("0-9-1/tx.rollback#01")
def a_rollback_without_select(site: Site) -> None:
    """tx.rollback on a channel without transactions closes it with 406."""
    site.peer().expect_refusal(TxRollback(), 406)
