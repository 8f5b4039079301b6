# SPDX-License-Identifier: Apache-2.0
"""Three servers of PostgreSQL under Patroni, which keeps its state in one etcd."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg

from headrace.testing.ports import reserve
from support.brokers.broker_process import until
from support.clients.client_programs import BROUGHT, bring, the_only
from support.postgres import PASSWORD, ROLE, account, owned_directory, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

PATRONI = BROUGHT / "patroni/usr"
ETCD = BROUGHT / "etcd/usr/bin/etcd"
START_S = 90.0
RUNNING = ("running", "streaming")  # The states of a server that answers.
TTL_S = 20  # Of the leader's key in etcd; Patroni does not accept a shorter one.
CONFIGURATION = """
scope: headrace
name: {name}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{api}"}}
etcd3: {{hosts: "127.0.0.1:{etcd}"}}
bootstrap:
  dcs:
    ttl: {ttl}
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: false
      use_slots: true
      parameters: {{wal_keep_size: 256MB, max_connections: 60}}
  initdb: [{{encoding: UTF8}}, {{auth: trust}}, no-sync]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: {home}/{name}
  bin_dir: {programs}
  pgpass: {home}/{name}.pass
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {{username: postgres, password: postgres}}
    replication: {{username: replicator, password: replicator}}
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust",
           "host replication all 127.0.0.1/32 trust"]
  parameters: {{unix_socket_directories: {home}, shared_buffers: 32MB}}
"""


class PatroniNode:
    """A server of PostgreSQL and its Patroni."""

    def __init__(self, home: Path, name: str, etcd_port: int) -> None:
        self.home = home
        self.name = name
        self.reserved = [reserve(), reserve()]
        self.port, self.api = (socket.getsockname()[1] for socket in self.reserved)
        self.file = home / f"{name}.yml"
        self.file.write_text(
            CONFIGURATION.format(
                name=name,
                home=home,
                port=self.port,
                api=self.api,
                etcd=etcd_port,
                ttl=TTL_S,
                programs=programs(),
            )
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        user = account()
        with (self.home / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", "-m", "patroni", self.file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
                env={
                    "PATH": os.environ["PATH"],
                    "LC_ALL": "C.UTF-8",
                    "HOME": str(self.home),
                    "PYTHONPATH": str(self.home / "patroni/lib/python3/dist-packages"),
                    "LD_LIBRARY_PATH": str(the_only(self.home / "patroni/lib", "*-linux-*")),
                },
            )

    def kill(self) -> None:
        """Kill Patroni first, which would restart its server, then the server."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for process in psutil.process_iter(["cmdline"]):
            if str(self.home / self.name) in (process.info["cmdline"] or []):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def end(self) -> None:
        """Kill it, and free its ports."""
        self.kill()
        for socket in self.reserved:
            socket.close()

    def status(self) -> str:
        """Return the state of its server, as Patroni's API has it; empty if it does not answer."""
        return str(self._ask("patroni").get("state", ""))

    def leads(self) -> bool:
        """Return True if it is the leader, and Patroni may replace it by a synchronous standby.

        Patroni promotes only a standby that it has written to etcd as synchronous.
        """
        members = self._ask("cluster").get("members", [])
        roles = {member["role"] for member in members if member["state"] in RUNNING}
        leaders = [member["name"] for member in members if member["role"] == "leader"]
        return leaders == [self.name] and "leader" in roles and "sync_standby" in roles

    def _ask(self, resource: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.api}/{resource}"
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return {}

    def switch_over(self) -> None:
        """Have a synchronous standby become the leader in place of this node."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.api}/switchover",
            json.dumps({"leader": self.name}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()

    def session(self) -> psycopg.Connection[tuple[object, ...]]:
        """Open a session of the superuser."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            dbname="postgres",
            connect_timeout=5,
            autocommit=True,
        )


class Patroni:
    """The nodes, one of which is the leader."""

    def __init__(self, home: Path, etcd_port: int) -> None:
        self.nodes = [PatroniNode(home, name, etcd_port) for name in ("one", "two", "three")]

    def url(self) -> str:
        """Return the URL for a broker, which names all nodes."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{ROLE}:{PASSWORD}@{hosts}/postgres"

    def wait_for_leader(self, *, other_than: PatroniNode | None = None) -> PatroniNode:
        """Return the leader as soon as a synchronous standby may replace it."""
        leader: PatroniNode | None = None

        def found() -> bool:
            nonlocal leader
            nodes = (node for node in self.nodes if node is not other_than)
            leader = next((node for node in nodes if node.leads()), None)
            return leader is not None

        until(found, "a leader with a synchronous standby", START_S)
        assert leader is not None
        return leader

    def wait_for_standbys(self) -> None:
        """Wait until all servers run: one leads, the others follow it."""
        until(
            lambda: all(node.status() in RUNNING for node in self.nodes),
            "all servers run",
            START_S,
        )


@contextlib.contextmanager
def etcd(home: Path) -> Iterator[int]:
    """Run a server of etcd; yield its port."""
    reserved = [reserve(), reserve()]
    client, peer = (socket.getsockname()[1] for socket in reserved)
    with (home / "etcd.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(ETCD, "--data-dir", home / "etcd", "--unsafe-no-fsync"),
                *("--listen-client-urls", f"http://127.0.0.1:{client}"),
                *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
                *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield client
    finally:
        process.kill()
        process.wait()
        for socket in reserved:
            socket.close()


@contextlib.contextmanager
def patroni() -> Iterator[Patroni]:
    """Run three nodes, whose leader has the role of a broker."""
    bring(PATRONI, ETCD)
    home = owned_directory()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        # A copy: the account of the servers need not be able to read the home of this one.
        shutil.copytree(PATRONI, home / "patroni", symlinks=True)
        cluster = Patroni(home, stack.enter_context(etcd(home)))
        for node in cluster.nodes:
            stack.callback(node.end)
            node.start()
        leader = cluster.wait_for_leader()
        cluster.wait_for_standbys()
        with leader.session() as session:
            session.execute(f"create role {ROLE} login password '{PASSWORD}'".encode())
            session.execute(f"grant create on database postgres to {ROLE}".encode())
        yield cluster
