# SPDX-License-Identifier: Apache-2.0
"""Connections of this process to brokers, and the retry of work when they break.

Spark reuses its Python workers, so connections are kept: one for reads, one for writes, and one for
requests. A broker that is short of memory stops reading from connections that publish messages, but
serves requests. Only the connection for writes reconnects by itself. All other work goes through
`run_with_retry`, which repeats it on a new connection until a time limit.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.client import Reconnect, blocking
from headrace.client.blocking_pipeline import Requests
from headrace.client.errors import (
    AuthenticationFailed,
    ConfirmLost,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
)
from headrace.client.requests import ANSWER_S
from headrace.columns.options.uri import urls
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.client.url import Secret

log = logging.getLogger(__name__)

BACKOFF: Final = Reconnect(delay_s=0.1, delay_max_s=2.0)
WRITING: Final = Reconnect(delay_s=0.1, delay_max_s=2.0, attempts=35)  # About a minute.
LINKS_MAX: Final = 16  # Brokers that a process stays connected to, per purpose.
LANES_MAX: Final = 64  # Concurrent reads that have connections of their own.
ANSWER_UNTOLD_S: Final = 3600.0  # An alarm may take long; heartbeats detect a dead broker.
NOT_HERE: Final = (402, 530)  # Codes for an unknown virtual host; the version decides which.
FORCED: Final = 320  # connection.close by an operator, or by a broker that stops.

T = TypeVar("T")


class Purpose(Enum):
    """The purpose of a connection."""

    READ = "read"
    WRITE = "write"
    ASK = "ask"


Key = tuple[int, str, Purpose, int]
_links: dict[Key, blocking.Connection] = {}
_requests: dict[Key, Requests] = {}
_known: set[tuple[int, str]] = set()  # Brokers that this process has been connected to.
_lanes: set[int] = set()  # The lanes in use; sequential reads share lane 0.
_lock = threading.Lock()


class TooManyReadsError(RuntimeError):
    """This process has `LANES_MAX` concurrent reads."""


def link(uri: Secret, purpose: Purpose = Purpose.READ, lane: int = 0) -> blocking.Connection:
    """Return the connection of this process; it opens at the first call and after a loss."""
    key = (os.getpid(), str(uri), purpose, lane)
    with _lock:
        kept = _links.get(key)
        if kept is not None and not kept.is_closed:
            return kept
        again = WRITING if purpose is Purpose.WRITE else None
        kept = blocking.connect(urls(uri), reconnect=again, name=f"{_product()}-{purpose.value}")
        _links.pop(key, None)
        shared = [link_key for link_key in _links if link_key[3] == 0]
        while lane == 0 and len(shared) >= LINKS_MAX * len(Purpose):
            oldest = shared.pop(0)
            _requests.pop(oldest, None)
            _links.pop(oldest).close()
        _links[key] = kept
        _known.add(key[:2])
        return kept


@contextmanager
def own_lane(uri: Secret) -> Iterator[int]:
    """Give a read connections of its own, which close at its end.

    A connection stops reading while one of its reads takes no records, and then its other reads
    stop as well. So reads that advance together, as both sides of a join do, must not share one.
    """
    with _lock:
        lane = next((number for number in range(1, LANES_MAX + 1) if number not in _lanes), 0)
        if not lane:
            raise TooManyReadsError(
                f"{LANES_MAX} reads are open at once in this process, which is the limit: let some "
                "end first"
            )
        _lanes.add(lane)
    try:
        yield lane
    finally:
        _close(uri, lane)
        with _lock:
            _lanes.discard(lane)


def _product() -> str:
    """Return the name under which operators see the connections."""
    return "headrace-spark" if "headrace.spark" in sys.modules else "headrace-arrow"


def requests(connection: blocking.Connection) -> Requests:
    """Return the requests on the broker of a connection that `link` gave for Purpose.ASK."""
    for key, kept in _links.items():
        if kept is connection:
            asked = _requests.get(key)
            if asked is None or asked.source.connection is not connection.source:
                # Other versions have no connection.blocked.
                hears_of_blocking = connection.version is V0_9_1
                timeout_s = ANSWER_S if hears_of_blocking else ANSWER_UNTOLD_S
                asked = _requests[key] = Requests(connection, timeout_s=timeout_s)
            return asked
    raise AssertionError("a connection that `link` did not give")


def run_with_retry(
    uri: Secret,
    timeout_s: float,
    work: Callable[[blocking.Connection], T],
    purpose: Purpose = Purpose.READ,
    *,
    known: bool = False,
    lane: int = 0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Run `work` over a connection; repeat it when the connection breaks or cannot be opened.

    Retries end `timeout_s` after the first failure. A broker that was never reached is not retried,
    unless it is `known`, as for a task whose driver has reached it. `work` must be idempotent.
    """
    until: float | None = None
    several = len(urls(uri)) > 1
    delays = BACKOFF.delays(several=several)
    while True:
        try:
            return work(link(uri, purpose, lane))
        except AuthenticationFailed:
            raise
        except (ConnectFailed, ConnectionLost, ConnectionClosed, ConfirmLost) as error:
            if not (known or (os.getpid(), str(uri)) in _known) or _is_final(error, several):
                raise
            now = clock()
            until = now + timeout_s if until is None else until
            if now >= until:
                raise
            log.info("connecting again: %s", error)
            sleep(min(next(delays), until - now))


def forget(uri: Secret) -> None:
    """Close the connections of this process; the next call makes new ones."""
    _close(uri, 0)


def _close(uri: Secret, lane: int) -> None:
    for purpose in Purpose:
        kept = _links.pop((os.getpid(), str(uri), purpose, lane), None)
        if kept is not None:
            kept.close()


def _is_final(error: Exception, several: bool) -> bool:
    """Return True if the broker refused the connection, so that a retry cannot help.

    With `several` brokers an unknown virtual host is no refusal: while a virtual host moves between
    brokers, none of them knows it for a moment.
    """
    if isinstance(error, ConnectionClosed):
        return error.code not in (FORCED, 200)
    if several and isinstance(error, ConnectFailed) and error.code in NOT_HERE:
        return False
    return isinstance(error, ConnectFailed) and error.code not in (0, FORCED)
