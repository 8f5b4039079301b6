# SPDX-License-Identifier: Apache-2.0
"""The journal against its model, from seeds. HEADRACE_SEEDS=1000 tries that many more."""

import os

import pytest

from headrace.store.journal.journal import Journal
from headrace.testing.disk import FaultyDisk
from support.disks.journal_model import History

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_durable_is_lost_and_nothing_settled_returns(seed: int) -> None:
    history = History(seed)
    history.run(turns=250)
    assert history.lives > 1
    assert history.confirms


class Forgetful(Journal):
    """A journal that takes every settlement for a consumer's."""

    def bind(self) -> None:
        pass


def test_the_history_notices_confirms_of_messages_that_no_consumer_settled() -> None:
    def run() -> None:
        for seed in range(50):
            History(seed, journal_class=Forgetful).run(turns=250)

    with pytest.raises(AssertionError, match="confirmed message"):
        run()


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_sync_takes_nothing_that_was_durable_in_the_block(seed: int) -> None:
    """The disk of these histories: a block that came in two writes is lost or kept as one."""
    disk = FaultyDisk(seed)
    handle = disk.open("/file", create=True)
    disk.write(handle, [b"durable"], 0)
    disk.sync(handle)
    disk.write(handle, [b"one"], 7)
    disk.write(handle, [b"two"], 10)
    disk.sync_error_rate = 1.0
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(handle)
    assert bytes(disk.names_now["/file"].platter) in (b"durable", b"durableonetwo")
