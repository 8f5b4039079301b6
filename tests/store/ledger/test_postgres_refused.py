# SPDX-License-Identifier: Apache-2.0
"""Servers of PostgreSQL that may hold no ledger: each is refused with a text that says why."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from headrace.store.errors import StoreError
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster, UnfitServerError
from headrace.store.ledger.postgres_schema import VERSION
from headrace.store.ledger.postgres_session import Address
from headrace.testing.ports import reserve
from support.brokers.broker_process import until
from support.clients.client_programs import BROUGHT, bring, the_only
from support.postgres import PASSWORD, ROLE, Servers, account, servers

NUMBERS = itertools.count()
POOLER = BROUGHT / "pgbouncer/usr"


@pytest.fixture(scope="module")
def running() -> Iterator[Servers]:
    with servers() as found:
        yield found


@pytest.fixture
def database(running: Servers) -> Iterator[str]:
    """The URL of a database of the test's own."""
    name = f"database{next(NUMBERS)}"
    with contextlib.closing(running.primary.admin()) as session:
        session.execute(f'create database "{name}" owner {ROLE}'.encode())
    yield running.primary.url().replace("/postgres", f"/{name}")
    with contextlib.closing(running.primary.admin()) as session:
        session.execute(f'drop database "{name}" with (force)'.encode())


@pytest.fixture
def changed(running: Servers) -> Iterator[Servers]:
    """The servers; settings of the primary are those of before after the test."""
    conf = running.primary.directory / "postgresql.conf"
    before = conf.read_text()
    yield running
    conf.write_text(before)
    running.primary.reload("")
    running.wait_for_standby()


def test_a_database_is_prepared_once(database: str) -> None:
    first = Cluster(Address(database)).prepare()
    assert len(first) == 32
    assert Cluster(Address(database)).prepare() == first


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("synchronous_standby_names = ''", "its commits wait for no standby"),
        ("fsync = off", "fsync is off"),
        ("default_transaction_read_only = on", "read-only"),
    ],
)
def test_a_server_without_the_promise_is_refused(
    database: str, changed: Servers, setting: str, why: str
) -> None:
    Cluster(Address(database)).prepare()
    changed.primary.reload(setting)
    for use in (Cluster(Address(database)).prepare, Cluster(Address(database)).session):
        with pytest.raises(OSError, match=why):
            use()


def test_storage_that_is_replicated_itself_needs_no_standby(
    database: str, changed: Servers
) -> None:
    changed.primary.reload("synchronous_standby_names = ''")
    cluster = Cluster(Address(database), standbys=False)
    cluster.prepare()
    with contextlib.closing(PostgresLedger(cluster, "/", "broker-1")) as ledger:
        ledger.open()
        ledger.append(1, [b"one"])
        assert list(ledger.read(0)) == [(1, b"one")]


def test_a_standby_is_refused_and_the_primary_is_found_among_several(
    database: str, running: Servers
) -> None:
    standby = database.replace(str(running.primary.port), str(running.standby.port))
    known = f"select 1 from pg_database where datname = '{database.rpartition('/')[2]}'"
    until(lambda: running.standby.execute(known), "the standby has the database")
    with pytest.raises(OSError, match="read-only"):
        Cluster(Address(standby)).prepare()
    both = f"127.0.0.1:{running.standby.port},127.0.0.1:{running.primary.port}"
    Cluster(Address(database.replace(f"127.0.0.1:{running.primary.port}", both))).prepare()


def test_a_server_that_is_gone_is_told_with_its_address(running: Servers) -> None:
    address = Address(running.primary.url(port=9))
    with pytest.raises(OSError, match=r"PostgreSQL at 127\.0\.0\.1/postgres: .*refused"):
        Cluster(address).prepare()


def execute(running: Servers, url: str, *statements: str) -> None:
    """Run statements as the superuser in the database of a URL."""
    with contextlib.closing(running.primary.admin(url.rpartition("/")[2])) as session:
        for statement in statements:
            session.execute(statement.encode())


def test_a_newer_schema_is_refused(database: str, running: Servers) -> None:
    Cluster(Address(database)).prepare()
    execute(running, database, f"update headrace.cluster set version = {VERSION + 1}")
    with pytest.raises(UnfitServerError, match=f"has version {VERSION + 1}.*upgrade Headrace"):
        Cluster(Address(database)).prepare()


def test_another_cluster_is_refused(database: str, running: Servers) -> None:
    """Two servers of a list, or a database that was made anew."""
    cluster = Cluster(Address(database))
    known = cluster.prepare()
    execute(running, database, "update headrace.cluster set id = 'other'")
    with pytest.raises(UnfitServerError, match=f"holds cluster other, this broker is of .*{known}"):
        cluster.session()


def test_a_database_without_the_schema_is_none_of_the_cluster(database: str) -> None:
    with pytest.raises(UnfitServerError, match="has no schema headrace"):
        Cluster(Address(database)).session()


def test_missing_rights_are_told_with_the_remedy(database: str, running: Servers) -> None:
    name = database.rpartition("/")[2]
    execute(running, database, f'alter database "{name}" owner to postgres')
    with pytest.raises(UnfitServerError, match=r"lacks rights.*create schema headrace"):
        Cluster(Address(database)).prepare()
    execute(running, database, f"create schema headrace authorization {ROLE}")
    Cluster(Address(database)).prepare()


def test_a_schema_of_another_role_is_refused(database: str, running: Servers) -> None:
    Cluster(Address(database)).prepare()
    execute(
        running,
        database,
        "alter table headrace.log owner to postgres",
        f"grant select on headrace.cluster to {ROLE}",
    )
    with pytest.raises(UnfitServerError, match=r"does not own .*: log in as postgres"):
        Cluster(Address(database)).prepare()


@pytest.mark.parametrize(
    "setting",
    [
        "synchronous_commit = off",
        "client_min_messages = error",
        "default_transaction_isolation = serializable",
        "statement_timeout = '200ms'",
        "search_path = ''",
        "lc_messages = 'C.UTF-8'",
    ],
)
def test_settings_of_the_role_do_not_weaken_the_promise(
    database: str, running: Servers, setting: str
) -> None:
    execute(running, database, f"alter role {ROLE} set {setting}")
    try:
        cluster = Cluster(Address(database))
        cluster.prepare()
        with contextlib.closing(cluster.session()) as session:
            names = ("synchronous_commit", "client_min_messages", "statement_timeout")
            values = [session.query(b"select current_setting($1)", name) for name in names]
        assert values == [[(b"on",)], [(b"warning",)], [(b"30s",)]]
        with contextlib.closing(PostgresLedger(cluster, "/", "broker-1")) as ledger:
            ledger.open()
            ledger.append(1, [bytes(1 << 20)])
    finally:
        execute(running, database, f"alter role {ROLE} reset all")


def test_a_statement_that_takes_too_long_changes_nothing(database: str) -> None:
    cluster = Cluster(Address(database))
    cluster.prepare()
    with contextlib.closing(PostgresLedger(cluster, "/", "broker-1")) as ledger:
        ledger.open()
        ledger.append(1, [b"one"])
        with contextlib.closing(cluster.session()) as session, ledger.session() as own:
            own.query(b"select set_config('statement_timeout', '200ms', false)")
            own.query(b"select set_config('lock_timeout', '0', false)")
            session.query(b"begin")
            session.query(b"lock table headrace.log")
            with pytest.raises(OSError, match="statement timeout"):
                ledger.append(2, [b"two"])
        ledger.append(2, [b"two"])
        assert list(ledger.read(0)) == [(1, b"one"), (2, b"two")]


# --- A proxy that pools -----------------------------------------------------------------------


@contextlib.contextmanager
def pooler(running: Servers, mode: str, size: int) -> Iterator[int]:
    """Run PgBouncer before the primary; yield its port."""
    bring(POOLER)
    # A copy: its user may read the home of the servers, and need not that of this one.
    own = running.home / "pgbouncer"
    if not own.exists():
        shutil.copytree(POOLER, own, symlinks=True)
    program = own / "sbin/pgbouncer"
    reserved = reserve()
    port = reserved.getsockname()[1]
    conf = running.home / f"pooler-{mode}-{size}.ini"
    target = f"host={running.home} port={running.primary.port} user={ROLE}"
    conf.write_text(
        f"[databases]\n* = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
        f"default_pool_size = {size}\n"
    )
    libraries = the_only(own / "lib", "*-linux-*")
    process = subprocess.Popen(
        [program, "-q", conf],
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
        user=account(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: listens(port), "PgBouncer listens")
        yield port
    finally:
        process.kill()
        process.wait()
        reserved.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_proxy_that_pools_transactions_is_refused(
    database: str, running: Servers, size: int
) -> None:
    with pooler(running, "transaction", size) as port:
        url = database.replace(f":{running.primary.port}", f":{port}")
        with pytest.raises(UnfitServerError, match="pools transactions"):
            Cluster(Address(url)).prepare()


def test_a_proxy_that_pools_sessions_is_accepted(database: str, running: Servers) -> None:
    with pooler(running, "session", 5) as port:
        url = database.replace(f":{running.primary.port}", f":{port}")
        cluster = Cluster(Address(url))
        cluster.prepare()
        with contextlib.closing(PostgresLedger(cluster, "/", "broker-1")) as ledger:
            ledger.open()
            ledger.append(1, [b"one"])
            assert list(ledger.read(0)) == [(1, b"one")]


@pytest.mark.parametrize("password", ["pa@s3cr-t", "pa/s3cr-t", "s3cr-t/@", "@s3cr-t"])
def test_a_password_that_is_not_quoted_is_refused_unseen(password: str) -> None:
    """libpq would take a part of it for a host or a database, and name that in its errors."""
    for scheme in ("postgresql", "postgres"):
        url = f"{scheme}://{ROLE}:{password}@127.0.0.1/headrace?application_name=a@b"
        with pytest.raises(StoreError, match="write %40 for @ and %2F for /") as caught:
            Address(url)
        assert "s3cr" not in str(caught.value)
    Address(f"postgresql://{ROLE}:{quote(password, safe='')}@one:5432,two/headrace")


def test_passwords_are_in_no_text(
    database: str, running: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = database.replace(PASSWORD, "wr0ng-password")
    texts = []
    for url in (
        wrong,
        f"{database}?{PASSWORD}",
        f"host=x {PASSWORD}",
        f"postgresql://u:{PASSWORD}@h:{PASSWORD}/",
    ):
        with pytest.raises((OSError, StoreError)) as caught:
            Cluster(Address(url)).prepare()
        texts += [str(caught.value), repr(caught.value)]
        assert caught.value.__cause__ is None
    address = Address(database)
    ledger = PostgresLedger(Cluster(address), "/", "broker-1")
    texts += [repr(address), str(address), address.text, repr(ledger), caplog.text]
    for text in texts:
        assert PASSWORD not in text
        assert "wr0ng" not in text
