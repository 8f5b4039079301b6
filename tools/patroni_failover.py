# SPDX-License-Identifier: Apache-2.0
"""Lets Patroni fail over under a broker of a cluster, and prints the waits of its clients.

    PYTHONPATH=build/compiled .venv/bin/python tools/patroni_failover.py

Needs Debian's packages postgresql, patroni and etcd-server. Three nodes under Patroni with
synchronous_mode and synchronous_mode_strict; a client publishes and waits for each confirm, while
the leader and its Patroni are killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.broker_process import Served, until
from support.cluster import channel_to, drained, put
from support.postgres import PASSWORD, ROLE, account, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 90.0
BUSY_S = 5.0
NODE = """
scope: headrace
name: {name}
restapi: {{listen: "127.0.0.1:{rest}", connect_address: "127.0.0.1:{rest}"}}
etcd3: {{hosts: "127.0.0.1:{etcd}"}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 3
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: false
      use_slots: true
      parameters: {{wal_keep_size: 256MB, max_connections: 60}}
  initdb: [{{encoding: UTF8}}, {{auth: trust}}]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: {home}/{name}
  bin_dir: {bin}
  pgpass: {home}/{name}.pass
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {{username: postgres, password: postgres}}
    replication: {{username: replicator, password: replicator}}
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust",
           "host replication all 127.0.0.1/32 trust"]
  parameters: {{unix_socket_directories: {home}}}
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Node:
    """A server of PostgreSQL and its Patroni."""

    def __init__(self, home: Path, name: str, etcd: int) -> None:
        folder = programs()
        assert folder is not None
        self.port, self.rest = free_port(), free_port()
        self.home, self.name = home, name
        self.file = home / f"{name}.yml"
        told = {"name": name, "rest": self.rest, "etcd": etcd, "port": self.port, "bin": folder}
        self.file.write_text(NODE.format(home=home, **told))
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.home / f"{self.name}.log").open("ab") as log:
            self.child = subprocess.Popen(
                ["/usr/bin/patroni", str(self.file)],
                stdout=log,
                stderr=log,
                cwd=self.home,
                user=account(),
                group=pwd.getpwnam(account() or "postgres").pw_gid,
                extra_groups=[],
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            )

    def kill(self) -> None:
        """Kill Patroni first, so that it restarts nothing, then its server."""
        if self.child is None:
            return
        self.child.kill()
        self.child.wait()
        for process in psutil.process_iter(["cmdline"]):
            if str(self.home / self.name) in (process.info["cmdline"] or []):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def role(self) -> str:
        url = f"http://127.0.0.1:{self.rest}/patroni"
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url) as answer:
            told = json.load(answer)
            return f"{told['role']} {told['state']}"
        return "down"


@contextlib.contextmanager
def etcd(home: Path) -> Iterator[int]:
    client, peer = free_port(), free_port()
    child = subprocess.Popen(
        [
            *("/usr/bin/etcd", "--data-dir", str(home / "etcd")),
            *("--listen-client-urls", f"http://127.0.0.1:{client}"),
            *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield client
    finally:
        child.kill()
        child.wait()


def leader_of(nodes: list[Node]) -> Node | None:
    return next((one for one in nodes if one.role() in ("master running", "primary running")), None)


def is_settled(nodes: list[Node]) -> bool:
    """Return True if there is a leader with a synchronous standby, and all run."""
    leader = leader_of(nodes)
    if leader is None or not all(one.role().endswith("running") for one in nodes):
        return False
    with (
        contextlib.suppress(psycopg.Error),
        psycopg.connect(
            host="127.0.0.1",
            port=leader.port,
            user="postgres",
            dbname="postgres",
            connect_timeout=2,
        ) as session,
    ):
        query = "select count(*) from pg_stat_replication where sync_state = 'sync'"
        return bool((session.execute(query).fetchone() or (0,))[0])
    return False


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="headrace-patroni-"))
    if (user := account()) is not None:
        shutil.chown(home, user)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        port = stack.enter_context(etcd(home))
        nodes = [Node(home, name, port) for name in ("one", "two", "three")]
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        until(lambda: is_settled(nodes), "a leader with a synchronous standby", START_S)
        leader = leader_of(nodes)
        assert leader is not None
        with psycopg.connect(
            host="127.0.0.1", port=leader.port, user="postgres", dbname="postgres", autocommit=True
        ) as session:
            session.execute(f"create role {ROLE} login password '{PASSWORD}'")
            session.execute(f"grant create on database postgres to {ROLE}")
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in nodes)
        os.environ["HEADRACE_CLUSTER"] = f"postgresql://{ROLE}:{PASSWORD}@{hosts}/postgres"
        broker = Served(home / "broker", "--cluster-name", "a").start()
        stack.callback(broker.kill)
        sent = 50
        with channel_to(broker) as channel:
            channel.queue_declare("orders", durable=True)
            put(channel, range(sent))
            threading.Timer(0.1, leader.kill).start()
            begun_s, longest_s = time.monotonic(), 0.0
            while longest_s < 1.0 or time.monotonic() - begun_s < BUSY_S:
                asked_s = time.monotonic()
                put(channel, [sent])
                sent += 1
                longest_s = max(longest_s, time.monotonic() - asked_s)
        assert drained(broker) == list(range(sent))
        print(f"the longest confirm took {longest_s:.1f} s")
        print(f"{sent} messages confirmed on one connection, all there, each once, in order")


if __name__ == "__main__":
    main()
