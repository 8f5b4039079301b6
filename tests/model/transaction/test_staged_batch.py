# SPDX-License-Identifier: Apache-2.0
"""Staged batches on the model alone: what time does to them, and names that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import IllegalState, InvalidArgument, NotFound
from headrace.model.message import new_message
from headrace.model.ports import Store
from headrace.model.transaction.dtx import BranchState
from headrace.model.transaction.staged_batch import OWNER_S, Stage, build_xid, global_id, read_xid
from headrace.model.transaction.xid import STAGED
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from headrace.model.transaction.transaction import Transaction


class Session:
    transaction: Transaction | None = None


@pytest.fixture
def vhost() -> VirtualHost:
    vhost = VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))
    vhost.declare_queue("q", durable=True)
    return vhost


def done(steps: Any) -> Any:
    """Do a request to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def stage(vhost: VirtualHost, name: str, batch: int, count: int = 1) -> Stage:
    session = Session()
    vhost.branches.start(session, build_xid("s", batch, f"{name}/0"), ends_with_outcome=True)
    assert session.transaction is not None
    for _ in range(count):
        session.transaction.publish(
            new_message(b"\x00\x01q\x00\x00x", 3, 1), [vhost.queues["q"]], True
        )
        session.transaction.publish_count += 1
    assert vhost.sinks.prepare("s", 0, batch, f"{name}/0", count)
    return Stage(name, 1)


def pass_time(vhost: VirtualHost, seconds: float) -> None:
    vhost.counters.now_ms += int(seconds * 1000)
    vhost.scheduler.run(vhost.counters.now_ms)


def test_undecided_batches_expire(vhost: VirtualHost) -> None:
    done(vhost.sinks.begin("s", "me", "run"))
    vhost.sinks.keep_ms = 60_000
    stage(vhost, "0.1.a", 0, 3)
    pass_time(vhost, 59)
    late = stage(vhost, "0.2.b", 0)
    pass_time(vhost, 2)
    assert [read_xid(b.xid) for b in vhost.sinks.undecided_branches("s")] == [("s", 0, "0.2.b/0")]
    assert done(vhost.sinks.commit("s", 0, 0, [late]))["messages"] == 1
    pass_time(vhost, 600)
    assert vhost.queues["q"].ready_count == 1
    assert vhost.queues["q"].pending_count == 0
    assert not vhost.branches.find_global(STAGED, global_id("s", 0))


def test_a_silent_owner_loses_its_sink_in_time(vhost: VirtualHost) -> None:
    done(vhost.sinks.begin("s", "me", ""))
    pass_time(vhost, OWNER_S - 1)
    vhost.sinks.check_epoch("s", 1)  # It is heard of.
    pass_time(vhost, OWNER_S - 1)
    with pytest.raises(IllegalState, match="belongs to 'me'"):
        done(vhost.sinks.begin("s", "you", ""))
    pass_time(vhost, 2)
    assert done(vhost.sinks.begin("s", "you", ""))["epoch"] == 2
    with pytest.raises(IllegalState, match="epoch"):
        vhost.sinks.check_epoch("s", 1)


def test_a_sink_that_is_given_up_takes_its_work_along(vhost: VirtualHost) -> None:
    done(vhost.sinks.begin("s", "me", ""))
    stage(vhost, "0.1.a", 4)
    assert done(vhost.sinks.discard("s"))["branches"] == 1
    assert list(vhost.sinks) == []
    with pytest.raises(NotFound):
        done(vhost.sinks.commit("s", 0, 4, []))


def test_staged_work_that_an_operator_rolled_back_cannot_be_committed(vhost: VirtualHost) -> None:
    done(vhost.sinks.begin("s", "me", ""))
    whole, lost = stage(vhost, "0.1.a", 0), stage(vhost, "1.1.b", 0)
    vhost.branches.rollback(build_xid("s", 0, "1.1.b/0"))
    with pytest.raises(NotFound):
        done(vhost.sinks.commit("s", 0, 0, [whole, lost]))
    assert [b.state for b in vhost.sinks.undecided_branches("s")] == [BranchState.PREPARED]
    assert vhost.queues["q"].ready_count == 0


@pytest.mark.parametrize("sink", ["", "s" * 65, "a\x00b", "\n"])
def test_names_are_bounded(sink: str) -> None:
    with pytest.raises(InvalidArgument):
        build_xid(sink, 0, "0")


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:-1", "a:x", "a:10000", "a:" + "9" * 5000])
def test_names_of_work_are_read_with_care(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Stage.parse(text)
