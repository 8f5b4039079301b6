# SPDX-License-Identifier: Apache-2.0
"""Databases and files that a broker of a cluster cannot use: it says why, and nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Served, until
from support.cluster import drained, operator, publish, wait_until_served
from support.networks import jump, with_jumping_clock
from support.postgres import PASSWORD, ROLE, Servers

if TYPE_CHECKING:
    from psutil import Process

Make = Callable[..., Served]
DAY_S = 86_400


def refusal(home: Path, *options: str) -> str:
    """Return what `headrace serve` says that does not start; it knows the database by its URL."""
    command = [sys.executable, "-m", "headrace.cli", "serve", "--port", "0", "--data", str(home)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("before", "change", "why"),
    [
        (True, "update headrace.cluster set version = 99", "has version 99.*upgrade Headrace"),
        (True, f"revoke all on all tables in schema headrace from {ROLE}", "rights"),
        (True, "alter database postgres set default_transaction_read_only = on", "read.only"),
        (False, f"revoke create on database postgres from {ROLE}", "create schema headrace"),
        (False, "alter system set synchronous_standby_names = ''", "wait for no standby: set it"),
    ],
)
def test_a_database_that_may_not_hold_a_cluster(
    make: Make, database: Servers, tmp_path: Path, before: bool, change: str, why: str
) -> None:
    if before:
        make("a").start().stop()
    database.primary.execute(change)
    database.primary.reload("")
    said = refusal(tmp_path / "other")
    assert re.search(why, said), said


def test_a_data_directory_of_another_cluster(
    make: Make, database: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make("a").start()
    publish(broker, range(3))
    broker.stop()
    database.primary.execute("create database other")
    database.primary.execute(f"grant create on database other to {ROLE}")
    monkeypatch.setenv("HEADRACE_CLUSTER", database.url().replace("/postgres", "/other"))
    assert ": name the other database" in refusal(broker.home / "data", "--cluster-name", "a")
    monkeypatch.setenv("HEADRACE_CLUSTER", database.url())
    assert drained(broker.start()) == list(range(3))


def test_files_that_are_older_than_the_ledger(make: Make, tmp_path: Path) -> None:
    broker = make("a").start()
    publish(broker, range(10))
    broker.stop()
    shutil.copytree(broker.home / "data", tmp_path / "kept")
    broker.start()
    publish(broker, range(10, 20))
    broker.stop()
    shutil.rmtree(broker.home / "data")
    (tmp_path / "kept").rename(broker.home / "data")
    assert drained(broker.start()) == list(range(20))


def test_a_ledger_with_a_hole(make: Make, database: Servers) -> None:
    """A broker that has the entries goes on; one that would have to read them serves nothing."""
    first = make("a").start()
    for number in range(5):
        publish(first, [number])
    first.stop()
    database.primary.execute("delete from headrace.entries_1_1 where number = 4")
    second = make("b").start()
    until(lambda: "cannot be served here" in second.log(), "it is told")
    assert "has no entry 4" in second.log()
    second.stop()
    assert drained(first.start()) == list(range(5))


def test_a_clock_that_jumps_changes_nothing(make: Make, tmp_path: Path) -> None:
    """Leases and heartbeats go by a clock that does not jump."""
    first, second = make("a", "--cluster-lease-s", "2"), make("b", "--cluster-lease-s", "2")
    clocks = [str(tmp_path / name) for name in ("one", "two")]
    for broker, clock in zip((first, second), clocks, strict=True):
        broker.program = with_jumping_clock(clock)
        broker.start()
    for days in (400, -400, 0):
        for clock, of in zip(clocks, (days, -days), strict=True):
            jump(clock, of * DAY_S)
        publish(second, range(10))
        with operator(second) as client:
            seen = client.ask("cluster status")
            assert seen["vhosts"] == {"/": "a"}
            rows = client.items("list brokers")
            assert [row["state"] for row in rows] == ["running", "running"]
    first.kill()
    wait_until_served(second)
    assert drained(second) == [*range(10)] * 3
    assert "the lease of this broker has ended" not in first.log() + second.log()


def test_the_password_of_the_database_is_shown_to_nobody(make: Make, database: Servers) -> None:
    broker = make("a", "--log-level", "debug").start()
    publish(broker, range(3))
    shown = [broker.log()]
    processes: list[Process] = [broker.process, *broker.process.children(recursive=True)]
    shown += [" ".join(process.cmdline()) for process in processes]
    with operator(broker) as client:
        shown += [str(client.ask("cluster status")), str(client.items("list settings"))]
        shown += [str(client.items("list brokers")), str(client.items("list alarms"))]
    for words in (["cluster", "status"], ["list", "brokers"], ["status"]):
        command = [sys.executable, "-m", "headrace.cli", *words]
        done = subprocess.run(
            [*command, "--data", str(broker.home / "data")],
            capture_output=True,
            text=True,
            env={**os.environ},
        )
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout + done.stderr)
    database.primary.kill()
    until(lambda: "no heartbeat in the cluster" in broker.log(), "a failure is told")
    shown.append(broker.log())
    for text in shown:
        assert PASSWORD not in text
