# SPDX-License-Identifier: Apache-2.0
"""Connections of this process to brokers, and the retry of work when they break.

Spark reuses its Python workers, so a process keeps its connections open. Reads, writes and requests
have separate connections, because a broker that is short of memory stops reading from connections
that publish messages, but serves requests. Only the connection for writes reconnects by itself.
Other operations use `run_with_retry`, which repeats them on a new connection until a time limit.
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
from headrace.columns.options.uri import split_urls
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.client.url import Secret

log = logging.getLogger(__name__)

RETRY_BACKOFF: Final = Reconnect(delay_s=0.1, delay_max_s=2.0)
WRITE_RECONNECT: Final = Reconnect(delay_s=0.1, delay_max_s=2.0, attempts=35)  # About a minute.
CONNECTIONS_MAX: Final = 16  # Brokers to which a process stays connected, for each purpose.
POOLS_MAX: Final = 64  # Concurrent reads with separate connections.
# The time limit of an answer in versions without connection.blocked. A broker may be blocked for
# long without a notice, and heartbeats detect a dead broker sooner.
ANSWER_UNNOTIFIED_S: Final = 3600.0
UNKNOWN_VHOST: Final = (402, 530)  # Reply codes for an unknown virtual host, by version.
CONNECTION_FORCED: Final = 320  # An operator closed the connection, or the broker stops.

T = TypeVar("T")


class Purpose(Enum):
    """The purpose of a connection: reads, writes, or requests to the broker."""

    READ = "read"
    WRITE = "write"
    ASK = "ask"


ConnectionKey = tuple[int, str, Purpose, int]  # Process id, URLs of the broker, purpose, pool.
_connections: dict[ConnectionKey, blocking.Connection] = {}
_requests: dict[ConnectionKey, Requests] = {}
_reached: set[tuple[int, str]] = set()  # Brokers to which this process has been connected.
_pools: set[int] = set()  # The pools in use; sequential reads share pool 0.
_lock = threading.Lock()


class TooManyReadsError(RuntimeError):
    """This process already has `POOLS_MAX` concurrent reads."""


def get_connection(
    uri: Secret, purpose: Purpose = Purpose.READ, pool: int = 0
) -> blocking.Connection:
    """Return the connection of this process for a purpose; open it if it is missing or closed.

    Sequential reads share pool 0. If the pool has too many connections, the oldest one is closed.
    """
    key = (os.getpid(), str(uri), purpose, pool)
    with _lock:
        connection = _connections.get(key)
        if connection is not None and not connection.is_closed:
            return connection
        reconnect = WRITE_RECONNECT if purpose is Purpose.WRITE else None
        connection = blocking.connect(
            split_urls(uri), reconnect=reconnect, name=f"{_product()}-{purpose.value}"
        )
        _connections.pop(key, None)
        shared = [other_key for other_key in _connections if other_key[3] == 0]
        while pool == 0 and len(shared) >= CONNECTIONS_MAX * len(Purpose):
            oldest = shared.pop(0)
            _requests.pop(oldest, None)
            _connections.pop(oldest).close()
        _connections[key] = connection
        _reached.add(key[:2])
        return connection


@contextmanager
def reserve_pool(uri: Secret) -> Iterator[int]:
    """Reserve a pool of connections for one read; they close at the end of the `with` block.

    A connection stops receiving while one of its reads takes no records, which stops its other
    reads, too. So reads that advance together, such as both sides of a join, need separate pools.

    Raises:
        TooManyReadsError: all pools are in use.
    """
    with _lock:
        pool = next((number for number in range(1, POOLS_MAX + 1) if number not in _pools), 0)
        if not pool:
            raise TooManyReadsError(
                f"{POOLS_MAX} reads are open at once in this process, which is the limit: let some "
                "end first"
            )
        _pools.add(pool)
    try:
        yield pool
    finally:
        _close(uri, pool)
        with _lock:
            _pools.discard(pool)


def _product() -> str:
    """Return the name under which operators see the connections."""
    return "headrace-spark" if "headrace.spark" in sys.modules else "headrace-arrow"


def requests(connection: blocking.Connection) -> Requests:
    """Return the client of requests on a connection from `get_connection` for Purpose.ASK."""
    for key, known_connection in _connections.items():
        if known_connection is connection:
            requests_client = _requests.get(key)
            if (
                requests_client is None
                or requests_client.source.connection is not connection.source
            ):
                # Versions other than 0-9-1 do not have connection.blocked.
                has_blocked_notices = connection.version is V0_9_1
                timeout_s = ANSWER_S if has_blocked_notices else ANSWER_UNNOTIFIED_S
                requests_client = _requests[key] = Requests(connection, timeout_s=timeout_s)
            return requests_client
    raise AssertionError("the connection is not from get_connection")


def run_with_retry(
    uri: Secret,
    timeout_s: float,
    operation: Callable[[blocking.Connection], T],
    purpose: Purpose = Purpose.READ,
    *,
    reached_before: bool = False,
    pool: int = 0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Run `operation` over a connection; repeat it when the connection breaks or cannot be opened.

    `operation` must be idempotent. Retries end `timeout_s` seconds after the first failure. The
    first connection to a broker is not retried, so that a wrong address fails at once.
    `reached_before` is True in tasks, because the driver has reached the broker before them.
    """
    deadline_s: float | None = None
    has_alternatives = len(split_urls(uri)) > 1
    delays = RETRY_BACKOFF.delays(several=has_alternatives)
    while True:
        try:
            return operation(get_connection(uri, purpose, pool))
        except AuthenticationFailed:
            raise
        except (ConnectFailed, ConnectionLost, ConnectionClosed, ConfirmLost) as error:
            if not (reached_before or (os.getpid(), str(uri)) in _reached) or _is_final(
                error, has_alternatives
            ):
                raise
            now_s = clock()
            deadline_s = now_s + timeout_s if deadline_s is None else deadline_s
            if now_s >= deadline_s:
                raise
            log.info("connecting again: %s", error)
            sleep(min(next(delays), deadline_s - now_s))


def forget(uri: Secret) -> None:
    """Close the connections of the shared pool; the next operation opens new ones."""
    _close(uri, 0)


def _close(uri: Secret, pool: int) -> None:
    for purpose in Purpose:
        connection = _connections.pop((os.getpid(), str(uri), purpose, pool), None)
        if connection is not None:
            connection.close()


def _is_final(error: Exception, has_alternatives: bool) -> bool:
    """Return True if the broker refused the connection, so that a retry cannot help.

    With `has_alternatives` an unknown virtual host is not a refusal. While a virtual host moves
    between brokers, it is briefly missing on all of them.
    """
    if isinstance(error, ConnectionClosed):
        return error.code not in (CONNECTION_FORCED, 200)
    if has_alternatives and isinstance(error, ConnectFailed) and error.code in UNKNOWN_VHOST:
        return False
    return isinstance(error, ConnectFailed) and error.code not in (0, CONNECTION_FORCED)
