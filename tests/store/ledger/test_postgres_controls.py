# SPDX-License-Identifier: Apache-2.0
"""What the adapter for PostgreSQL does against losses; without each of these, a loss is found.

A judge that found nothing with a part of the adapter left out would prove nothing with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.store.ledger.port import Fenced
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import SETTINGS, Cluster
from headrace.store.ledger.postgres_session import Address, PostgresSession
from support.brokers.broker_process import until
from support.ledger_judge import Judge
from support.postgres import WAITING, Server, Servers, servers
from support.timeouts import PATIENCE_S

ANSWER_S = 2.0  # Where no answer comes.
WITH = "as it is"


@pytest.fixture
def running() -> Iterator[Servers]:
    with servers() as found:
        Cluster(Address(found.primary.url())).prepare()
        yield found


def ledger_at(
    server: Server, owner: str, *, standbys: bool = True, answer_s: float = ANSWER_S
) -> PostgresLedger:
    cluster = Cluster(Address(server.url()), standbys=standbys, answer_s=answer_s)
    return PostgresLedger(cluster, "/", owner)


def begin(running: Servers, answer_s: float = ANSWER_S) -> tuple[Judge, PostgresLedger]:
    """Return a judge, and a ledger with one entry."""
    judge, ledger = Judge(), ledger_at(running.primary, "broker-1", answer_s=answer_s)
    judge.append(ledger, ledger.open().epoch, 1, b"one")
    return judge, ledger


def append_unless_in_doubt(judge: Judge, ledger: PostgresLedger, number: int) -> None:
    with contextlib.suppress(OSError):
        judge.append(ledger, ledger.epoch, number, b"entry %d" % number)


def end(running: Servers, judge: Judge, ledger: PostgresLedger) -> list[str]:
    """Lose the primary; return what the judge sees on the standby."""
    ledger.close()
    running.lose_primary()
    with contextlib.closing(ledger_at(running.standby, "broker-2", standbys=False)) as taken:
        return judge.violations(taken)


def while_it_waits(running: Servers, act: Callable[[int], object]) -> list[str]:
    """Act while an append waits for a standby out of reach; return what the judge sees.

    The act brings the answer, however busy the machine is.
    """
    judge, ledger = begin(running, PATIENCE_S)
    running.link.hold()
    appending = threading.Thread(target=append_unless_in_doubt, args=(judge, ledger, 2))
    appending.start()
    ((process,),) = until(lambda: running.primary.execute(WAITING), "the append waits")
    assert isinstance(process, int)
    act(process)
    appending.join()
    return end(running, judge, ledger)


@pytest.mark.parametrize("control", [WITH, "synchronous_commit = local"])
def test_a_commit_waits_for_the_standby(
    running: Servers, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if control != WITH:
        monkeypatch.setitem(SETTINGS, "synchronous_commit", "local")
        monkeypatch.setattr(Cluster, "check_standbys", lambda *_: None)
    judge, ledger = begin(running)
    running.link.hold()
    append_unless_in_doubt(judge, ledger, 2)
    assert bool(end(running, judge, ledger)) == (control != WITH)
    assert len(judge.confirmed) == (1 if control == WITH else 2)


@pytest.mark.parametrize("control", [WITH, "without the notice handler"])
def test_a_cancelled_wait_confirms_nothing(
    running: Servers, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if control != WITH:
        monkeypatch.setattr(PostgresSession, "on_notice", lambda *_: None)
    seen = while_it_waits(
        running, lambda process: running.primary.execute(f"select pg_cancel_backend({process})")
    )
    assert bool(seen) == (control != WITH)


@pytest.mark.parametrize("control", [WITH, "without a look at the setting"])
def test_standbys_that_are_configured_away_confirm_nothing(
    running: Servers, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if control != WITH:
        monkeypatch.setattr(Cluster, "check_standbys", lambda *_: None)
    seen = while_it_waits(
        running, lambda _: running.primary.reload("synchronous_standby_names = ''")
    )
    assert bool(seen) == (control != WITH)


def test_a_session_that_is_ended_in_its_wait_confirms_nothing(running: Servers) -> None:
    """The server ends the connection instead of an answer."""
    end_it = "select pg_terminate_backend({})"
    assert not while_it_waits(running, lambda pid: running.primary.execute(end_it.format(pid)))


NO_EPOCH = """
create or replace function headrace.advance(
    of_log integer, of_taken text, of_epoch bigint, number bigint) returns void
language plpgsql as $$
begin
    update headrace.log set last = number where id = of_log and last = number - 1;
    if not found then raise exception 'again' using errcode = 'HR003'; end if;
end $$"""


@pytest.mark.parametrize("control", [WITH, "without the comparison of the epoch"])
def test_an_owner_before_confirms_nothing(running: Servers, control: str) -> None:
    if control != WITH:
        running.primary.execute(NO_EPOCH)
    judge, zombie = begin(running)
    with (
        contextlib.closing(zombie),
        contextlib.closing(ledger_at(running.primary, "broker-2")) as owner,
    ):
        judge.append(owner, owner.open().epoch, 2, b"of the owner")
        with contextlib.suppress(Fenced):
            judge.append(zombie, zombie.epoch, 3, b"of the zombie")
        assert bool(judge.violations(owner)) == (control != WITH)


UNCONDITIONAL = """
create or replace function headrace.advance(
    of_log integer, of_taken text, of_epoch bigint, number bigint) returns void
language plpgsql as $$
begin
    execute format('delete from headrace.entries_%s_1 where number = $1', of_log) using number;
    update headrace.log set last = greatest(last, number) where id = of_log;
end $$"""


@pytest.mark.parametrize("control", [WITH, "a put without a condition"])
def test_an_entry_that_is_there_is_not_overwritten(running: Servers, control: str) -> None:
    if control != WITH:
        running.primary.execute(UNCONDITIONAL)
    judge, zombie = begin(running)
    with (
        contextlib.closing(zombie),
        contextlib.closing(ledger_at(running.primary, "broker-2")) as owner,
    ):
        judge.append(owner, owner.open().epoch, 2, b"of the owner")
        with contextlib.suppress(Fenced):
            judge.append(zombie, zombie.epoch, 2, b"of the zombie")
        assert bool(judge.violations(owner)) == (control != WITH)
