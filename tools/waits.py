# SPDX-License-Identifier: Apache-2.0
"""The waits of other clients while a broker ends large objects, for docs/guides/operations.md.

    PYTHONPATH=build/compiled .venv/bin/python tools/waits.py [--only WORD]

The broker and the client that owns the objects run in separate processes. This process queries a
queue repeatedly. Each line has its longest wait before the end of the objects and its longest wait
afterwards, the maximum processor time of the broker's loop during one of these waits, and the bytes
that the broker read from files. On a busy machine the processor time is more reliable.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client import Message
from headrace.client.blocking import Connection, connect
from headrace.gateway.security.passwords import NO_PASSWORD, make_account
from headrace.model.policy.accounts import Account, Permission
from headrace.store.catalog.changes import Changes
from headrace.store.catalog.users import UserDirectory
from headrace.testing.broker import ChildBroker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

BEFORE_S = 2.0  # The time measured before the end of the objects.
AFTER_S = 6.0  # The time measured afterwards; the broker reads changed accounts every second.
VHOST, USER = "large", "many"
EVERYTHING = Permission(".*", ".*", ".*")


class Scene(NamedTuple):
    """Objects that another client creates, and how they end; by default the client is killed."""

    make: Callable[[str], object]
    end: Callable[[UserDirectory], None] | None = None
    options: tuple[str, ...] = ()
    others: int = 0  # The number of further users.


def exclusive(url: str, queues: int, messages: int, octets: int) -> object:
    """Exclusive queues with transient messages."""
    connection = connect(url)
    channel = connection.channel()
    for n in range(queues):
        channel.declare_queue(f"q{n}", exclusive=True)
        if messages:
            channel.publish_many([Message(bytes(octets))] * messages, f"q{n}")
    return connection


def durable(url: str, queues: int, messages: int) -> object:
    """Durable queues in a virtual host, with persistent messages."""
    connection = connect(url.rpartition("/")[0] + f"/{VHOST}")
    channel = connection.channel()
    for n in range(queues):
        channel.declare_queue(f"q{n}", durable=True)
        channel.publish_many([Message(b"x" * 100, persistent=True)] * messages, f"q{n}")
    return connection


def connections(url: str, count: int, bindings: int, vhost: str = "%2F") -> object:
    """Connections of one user, each with a queue that it consumes from, and its bindings."""
    many: list[Any] = []
    url = url.replace("guest:guest", f"{USER}:secret").rpartition("/")[0] + f"/{vhost}"
    for n in range(count):
        connection: Connection = connect(url, reconnect=None)
        channel = connection.channel()
        channel.declare_queue(f"c{n}", exclusive=True)
        for key in range(bindings):
            channel.bind_queue(f"c{n}", "amq.topic", f"{n}.{key}")
        many.append((connection, channel.consume(f"c{n}").__enter__()))
    return many


def delete_vhost(users: UserDirectory) -> None:
    users.delete_vhost(VHOST)


def delete_user(users: UserDirectory) -> None:
    users.delete_user(USER)


def restrict(users: UserDirectory) -> None:
    users.set_permission(USER, "/", Permission("^c", "^c", "^nothing"))


PAGED = ("--memory-max", "256MiB")  # Of which the places of 500,000 messages take 50 MB.
SCENES = {
    "100 exclusive queues of 1,000 messages of 10 KB on disk": Scene(
        lambda url: exclusive(url, 100, 1000, 10_000), options=PAGED
    ),
    "500 exclusive queues of 1,000 messages of 10 KB on disk": Scene(
        lambda url: exclusive(url, 500, 1000, 10_000), options=PAGED
    ),
    "10,000 exclusive queues": Scene(lambda url: exclusive(url, 10_000, 0, 0)),
    "a virtual host with 10,000 durable queues of 10 messages": Scene(
        lambda url: durable(url, 10_000, 10), delete_vhost
    ),
    "a virtual host with 1,000 connections": Scene(
        lambda url: connections(url, 1000, 10, VHOST), delete_vhost
    ),
    "a user with 1,000 connections is deleted": Scene(
        lambda url: connections(url, 1000, 10), delete_user
    ),
    "a user with 1,000 connections may not read any more": Scene(
        lambda url: connections(url, 1000, 10), restrict
    ),
    "a permission changes, of one of 25,000 users": Scene(
        lambda url: connections(url, 1, 0), restrict, others=25_000
    ),
}


def own(name: str, url: str, pipe: Pipe) -> None:
    """Create the objects of a scene, and keep them until the end."""
    kept = SCENES[name].make(url)
    pipe.send("made")
    with contextlib.suppress(EOFError):
        pipe.recv()
    del kept


def octets_read(pid: int) -> int:
    """Return the bytes that a process has read from files and sockets."""
    facts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(facts["rchar"])


def busy(pid: int) -> float:
    """Return the processor time of the first thread of a process, in seconds."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def longest(ask: Callable[[], object], pid: int, seconds: float) -> tuple[float, float]:
    """Query repeatedly; return the longest wait for an answer, in seconds.

    The second value is the maximum processor time of the broker during one wait.
    """
    wait = work = 0.0
    until = time.monotonic() + seconds
    had = busy(pid)
    while (began := time.monotonic()) < until:
        ask()
        wait = max(wait, time.monotonic() - began)
        before, had = had, busy(pid)
        work = max(work, had - before)
        time.sleep(0.001)
    return wait, work


def measure(name: str) -> tuple[float, float, float, int]:
    """Return the longest waits before and after the end, the processor time, and the bytes read.

    Times are in seconds; the processor time is the maximum during one wait.
    """
    scene = SCENES[name]
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        data = Path(home) / "data"
        with ChildBroker(data):
            pass  # It has made its files.
        users = stack.enter_context(contextlib.closing(UserDirectory(data)))
        users.add_vhost(VHOST)
        users.set_permission("guest", VHOST, EVERYTHING)
        users.add_user(make_account(USER, "secret"))
        for vhost in ("/", VHOST):
            users.set_permission(USER, vhost, EVERYTHING)
        others = [f"user-{n}" for n in range(scene.others)]
        users.change(
            Changes(
                accounts={name: Account(name, NO_PASSWORD) for name in others},
                permissions={(name, "/"): EVERYTHING for name in others},
            )
        )
        broker = stack.enter_context(ChildBroker(data, *scene.options))
        context = multiprocessing.get_context("spawn")  # The default, but for Linux.
        near, far = context.Pipe()
        owner = context.Process(target=own, args=(name, broker.url, far), daemon=True)
        owner.start()
        far.close()
        near.recv()  # EOFError: it could not be made.
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("mine", exclusive=True)

            def ask() -> object:
                return channel.declare_queue("mine", passive=True)

            before, _ = longest(ask, broker.pid, BEFORE_S)
            read = octets_read(broker.pid)
            if scene.end is None:
                owner.kill()
            else:
                scene.end(users)
            after, work = longest(ask, broker.pid, AFTER_S)
            read = octets_read(broker.pid) - read
        owner.kill()
        owner.join()
    return before, after, work, read


def main() -> int:
    """Print a line for each scene."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="scenes whose name has this")
    only = parser.parse_args().only
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in SCENES:
        if only in name:
            before, after, work, read = measure(name)
            waits = f"{before * 1e3:4.0f} ms before {after * 1e3:5.0f} ms of {work * 1e3:4.0f}"
            print(f"{name:58} {waits} {read:>11,} octets", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
