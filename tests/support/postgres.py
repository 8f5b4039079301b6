# SPDX-License-Identifier: Apache-2.0
"""Real PostgreSQL servers, a primary and its standbys, and a proxy before one.

A process of tests makes one directory of a server, the template. Each server begins with a copy: a
standby that has what its primary began with follows it, as one made by pg_basebackup does. Tests
kill processes and no machine, so their directories are in memory where there is room.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from headrace.testing.ports import reserve_for
from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

ROLE = "broker"
PASSWORD = "s3cr-t-of-the-broker"
MEMORY = Path("/dev/shm")
LOG_SIZE = "640m"  # Of a small disk for the log of writes.
ROOM = 2 << 30  # Bytes of it that are free; else directories are on the disk.
# Processes of the server whose commit waits for a standby.
WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
SETTINGS = """
listen_addresses = '127.0.0.1'
max_wal_senders = 8
wal_keep_size = 256MB
max_connections = 40
shared_buffers = 32MB
wal_sender_timeout = 5s
wal_receiver_timeout = 5s
wal_retrieve_retry_interval = 100ms
hot_standby = on
"""
ACCESS = """
local all all trust
host replication all 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL that is installed, as Debian installs it."""
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(
        (int(path.parts[-3]), path.parent) for path in found if path.parts[-3].isdigit()
    )
    return newest[-1][1] if newest else None


def account() -> str | None:
    """Return the account to run servers as: they refuse to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Server:
    """One server, its directory and its port."""

    def __init__(self, home: Path, name: str) -> None:
        bin_ = programs()
        assert bin_ is not None
        self.bin = bin_
        self.home = home
        self.name = name
        self.directory = home / name
        self.log = home / f"{name}.log"
        self.mounted: Path | None = None
        self.port = reserve_for(self)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL."""
        self.run_any(str(self.bin / program), *arguments)

    def run_any(self, *command: str) -> None:
        """Run a program as the servers' account."""
        subprocess.run(
            command,
            check=True,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            user=account(),
            group=None if account() is None else pwd.getpwnam(account() or "").pw_gid,
            extra_groups=None if account() is None else [],
            timeout=PATIENCE_S,
        )

    def create(self) -> None:
        """Make the directory of a primary by hand; see :func:`template`."""
        self.run("initdb", "-D", str(self.directory), "-A", "trust", "-U", "postgres", "--no-sync")
        (self.directory / "pg_hba.conf").write_text(ACCESS)
        self.configure(SETTINGS)
        self.start()
        self.execute(f"create role {ROLE} login password '{PASSWORD}'")
        self.execute(f"grant create on database postgres to {ROLE}")
        self.stop()

    def copy(self) -> None:
        """Make the directory of a primary from the template."""
        self.run_any("cp", "-a", "--reflink=auto", str(template()), str(self.directory))

    def follow(self, primary: Server, port: int, *, from_the_beginning: bool = False) -> None:
        """Make the directory of a standby of a primary, which it follows by a port.

        Args:
            primary: the server.
            port: of the server, or of a proxy before it.
            from_the_beginning: True if the primary still has all that it has ever written.
        """
        source = f"host=127.0.0.1 port={port} user=postgres"
        if from_the_beginning:
            self.copy()
        else:
            self.run(
                "pg_basebackup", "-D", str(self.directory), "-d", source, "-c", "fast", "--no-sync"
            )
        (self.directory / "standby.signal").touch()
        self.configure(f"primary_conninfo = '{source} application_name={self.name}'\n")

    def configure(self, lines: str) -> None:
        """Add settings; a later line counts."""
        with (self.directory / "postgresql.conf").open("a") as conf:
            conf.write(f"{lines}\n")

    def bound_log(self) -> None:
        """Put the log of writes on a small disk of its own; only root may."""
        log = self.directory / "pg_wal"
        kept = log.rename(self.directory / "kept")
        log.mkdir()
        options = f"size={LOG_SIZE},mode=700,uid={kept.stat().st_uid},gid={kept.stat().st_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", log], check=True)
        self.mounted = log
        subprocess.run(["cp", "-a", f"{kept}/.", log], check=True)
        shutil.rmtree(kept)
        self.configure("max_wal_size = 192MB")

    def start(self) -> None:
        places = f"-p {self.port} -c unix_socket_directories={self.home}"
        arguments = ["-D", str(self.directory), "-l", str(self.log), "-w", "-o", places]
        self.run("pg_ctl", *arguments, "start")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.directory), "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """Stop it as a crash does."""
        self.stop("immediate")

    def end(self) -> None:
        """Stop it, whatever it does."""
        if (self.directory / "postmaster.pid").exists():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                self.go_on()
            with contextlib.suppress(subprocess.CalledProcessError):
                self.kill()
        if self.mounted is not None:
            subprocess.run(["umount", "-l", self.mounted], check=True)
            self.mounted = None

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.directory), "-w", "promote")

    def processes(self) -> list[int]:
        """Return the processes of the server."""
        main = int((self.directory / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def pause(self) -> None:
        """Let it stand still, with all its connections open."""
        for process in self.processes():
            os.kill(process, signal.SIGSTOP)

    def go_on(self) -> None:
        for process in self.processes():
            os.kill(process, signal.SIGCONT)

    def answers(self) -> bool:
        """Return True if the server takes connections."""
        with contextlib.suppress(psycopg.OperationalError):
            self.admin().close()
            return True
        return False

    def admin(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """Return a session of the superuser."""
        return psycopg.connect(
            host=str(self.home), port=self.port, user="postgres", dbname=database, autocommit=True
        )

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run a statement as the superuser, waiting for no standby."""
        with contextlib.closing(self.admin()) as session:
            session.execute("set synchronous_commit = local")
            cursor = session.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def reload(self, lines: str) -> None:
        """Change settings of the running server, and wait until sessions have them."""
        before = self.execute("select pg_conf_load_time()")
        self.configure(lines)
        self.run("pg_ctl", "-D", str(self.directory), "reload")
        until(lambda: self.execute("select pg_conf_load_time()") > before, "settings are read")

    def url(self, port: int | None = None) -> str:
        """Return the URL for a broker."""
        return f"postgresql://{ROLE}:{PASSWORD}@127.0.0.1:{port or self.port}/postgres"


@functools.cache
def template() -> Path:
    """Return the directory that each server begins with; it has the role of a broker."""
    home = owned_directory()
    atexit.register(shutil.rmtree, home)
    made = Server(home, "template")
    made.create()
    return made.directory


def owned_directory(*, on_disk: bool = False) -> Path:
    """Make a temporary directory of the servers' account."""
    in_memory = not on_disk and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    home = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=MEMORY if in_memory else None))
    name = account()
    if name is not None:
        shutil.chown(home, name)
    return home


class Servers:
    """A primary that waits for its standby, and the role of a broker.

    ``link`` is the network between the primary and its first standby. What it holds back, the
    standby lacks; one that merely stood still would find it in its socket.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.primary = Server(home, "primary")
        self.standby = Server(home, "standby1")
        self.all = [self.primary]
        self.link = Proxy(self.primary.port)
        self.linked = False

    def url(self) -> str:
        """Return the URL that names the primary and its first standby."""
        hosts = f":{self.primary.port},127.0.0.1:{self.standby.port}/"
        return self.primary.url().replace(f":{self.primary.port}/", hosts)

    def start(self, *, linked: bool, bounded: bool) -> None:
        self.linked = linked
        port = self.link.port if linked else self.primary.port
        self.primary.copy()
        self.primary.configure(f"synchronous_standby_names = 'ANY 1 ({self.standby.name})'")
        self.standby.follow(self.primary, port, from_the_beginning=True)
        if bounded:
            self.primary.bound_log()
            self.standby.bound_log()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Server.start, [self.primary, self.standby]))
        self.all.append(self.standby)
        self.wait_for_standby()

    def add(self, standby: Server, port: int | None = None) -> None:
        """Start one more standby; the primary waits for one of all."""
        standby.follow(self.primary, port or self.primary.port)
        standby.start()
        self.all.append(standby)
        names = ", ".join(server.name for server in self.all if server is not self.primary)
        self.primary.reload(f"synchronous_standby_names = 'ANY 1 ({names})'")

    def wait_for_standby(self, primary: Server | None = None) -> None:
        """Wait until commits of the primary wait for a standby that answers."""
        query = "select 1 from pg_stat_replication where sync_state in ('quorum', 'sync')"
        server = primary or self.primary
        until(lambda: server.execute(query), "a synchronous standby")

    def lose_primary(self) -> None:
        """Let the primary crash, with all that the link held back; promote the standby."""
        self.primary.kill()
        self.link.cut()
        self.standby.promote()

    def stop(self) -> None:
        self.link.close()
        with ThreadPoolExecutor(len(self.all)) as pool:
            list(pool.map(Server.end, self.all))


@contextlib.contextmanager
def servers(
    *, linked: bool = True, on_disk: bool = False, bounded: bool = False
) -> Iterator[Servers]:
    """Run a primary and a standby; skip the test where PostgreSQL is not installed.

    Args:
        linked: False for a standby that follows without the link, which takes time.
        on_disk: True where the time of a disk counts.
        bounded: True for logs of writes on small disks, which may become full; only for root.
    """
    if programs() is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    home = owned_directory(on_disk=on_disk)
    found = Servers(home)
    try:
        found.start(linked=linked, bounded=bounded)
        yield found
    finally:
        found.stop()
        shutil.rmtree(home)


class Proxy:
    """Passes connections on to a server, until it is told to hold them or to cut them.

    ``on_bytes`` is asked before bytes pass, with True for those of the client; it may call
    the methods of the proxy.
    """

    def __init__(self, port: int, listening: socket.socket | None = None) -> None:
        """Pass connections to a port; ``listening`` may be of another network."""
        self.target = port
        self.listening = listening or socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self.listening.getsockname()
        self.held = threading.Event()
        self.held.set()
        self.on_bytes: Callable[[bool, bytes], None] = lambda client, data: None
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except ConnectionRefusedError:
                    client.close()
                    continue
                for end in (client, server):  # A small write would wait for an answer.
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.pairs.append((client, server))
                threading.Thread(target=self.carry, args=(client, server), daemon=True).start()

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):  # The latter of a socket that was closed.
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    data = end.recv(1 << 16)
                    self.on_bytes(end is client, data)
                    self.held.wait()  # What is held when the connection is cut is lost.
                    if not data:
                        raise ConnectionError
                    (server if end is client else client).sendall(data)
        self.end(client, server)

    def end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def hold(self) -> None:
        """Let nothing pass."""
        self.held.clear()

    def go_on(self) -> None:
        self.held.set()

    def cut(self) -> None:
        """End all connections."""
        for pair in self.pairs:
            self.end(*pair)
        self.pairs.clear()
        self.held.set()

    def close(self) -> None:
        self.end(self.listening)
        self.cut()
