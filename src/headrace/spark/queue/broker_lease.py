# SPDX-License-Identifier: Apache-2.0
"""The lease of a queue's messages at a Headrace broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from headrace.client.requests import RequestRefused
from headrace.columns.errors import DataLossError, GroupInUseError
from headrace.columns.options.kinds import OptionError
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.columns.schema.offsets import OffsetError
from headrace.spark.queue.planner import QueueLeaseState

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.columns.options.options import ReadOptions
    from headrace.untyped import Json, JsonObject

log = logging.getLogger(__name__)

CLAIM_PAUSE_S: Final = 0.25  # The pause between two claims while the lease has another owner.
DISK_FULL_PAUSE_S: Final = 5.0  # The pause between two requests while the broker's disk is full.
OWNER_GONE_S: Final = 30  # The broker keeps an owner for this time without a connection.


class BrokerLease:
    """The lease of one queue for one group at its broker; it implements `planner.QueueLease`."""

    def __init__(
        self,
        options: ReadOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self._clock = clock
        self._sleep = sleep
        self._stream = ""
        self.rejects = 0  # Messages rejected in advance, as in the broker's last answer.

    def stream(self) -> str:
        """Return the name of the stream of leased messages, whose offsets are their numbers.

        Raises:
            DataLossError: the lease no longer exists.
        """
        if not self._stream and self.state() is None:
            options = self.options
            raise DataLossError(
                f"group {options.group!r} no longer has a lease of queue {options.queue!r}"
            )
        return self._stream

    def claim(self, owner: str) -> QueueLeaseState:
        """Make `owner` the owner of the lease; wait while the lease has another owner.

        Raises:
            GroupInUseError: the other owner is still there after `group_timeout_s`.
        """
        options = self.options
        deadline_s = self._clock() + options.group_timeout_s
        while True:
            try:
                return self._lease_state(
                    self._send("claim", owner=owner, timeout_s=OWNER_GONE_S, on_timeout="keep")
                )
            except RequestRefused as refused:
                if refused.code != "conflict":
                    self._raise_error(refused)
                if self._clock() >= deadline_s:
                    raise GroupInUseError(
                        f"option 'group': {refused.text}; another query reads queue "
                        f"{options.queue!r} as group {options.group!r}"
                    ) from None
            self._sleep(CLAIM_PAUSE_S)

    def release(self, owner: str) -> None:
        """Give up the ownership of the lease, which keeps its messages."""
        self._request("leave", owner=owner)

    def state(self) -> QueueLeaseState | None:
        """Return the state of the lease; None if it was never created."""
        try:
            return self._lease_state(self._send("info"))
        except RequestRefused as refused:
            if refused.code == "not-found" and "lease" in refused.text:
                return None
            self._raise_error(refused)

    def take(self, owner: str, first: int, records_max: int, bytes_max: int) -> int:
        """Lease messages, numbered from `first` on; return the number after the last.

        The call waits while the broker's disk is full, because then no message can be leased.
        """
        while True:
            try:
                last: int = self._send(
                    "take", owner=owner, first=first, messages=records_max, octets=bytes_max
                )["last"]
                return last
            except RequestRefused as refused:
                if refused.code != "limit":
                    self._raise_error(refused)
                log.warning("the query waits: %s", refused.text)
            self._sleep(DISK_FULL_PAUSE_S)

    def settle(self, owner: str, upto: int) -> int:
        """Settle the messages below `upto`; return the first number that is not settled."""
        settled: int = self._request("settle", owner=owner, upto=upto)["settled"]
        return settled

    def _lease_state(self, answer: JsonObject) -> QueueLeaseState:
        """Return the state in an answer; check that malformed messages have dead letters."""
        self._stream = answer["stream"]
        self.rejects = answer["rejects"]
        decoding = self.options.decoding
        if decoding is not None and decoding.rejects and not answer["dead_letters"]:
            raise OptionError(
                f"option 'mode' is 'DEADLETTER': queue {self.options.queue!r} has no dead-letter "
                "exchange (x-dead-letter-exchange): give it one, or set option 'deadLetterExchange'"
            )
        return QueueLeaseState(*(answer[name] for name in QueueLeaseState._fields))

    def _request(self, request: str, **fields: Json) -> JsonObject:
        """Send a request about the lease; raise the query's error if it is refused."""
        try:
            return self._send(request, **fields)
        except RequestRefused as refused:
            self._raise_error(refused)

    def _send(self, request: str, **fields: Json) -> JsonObject:
        """Send a request about the lease; raise RequestRefused if it is refused."""
        options = self.options

        def ask(connection: blocking.Connection) -> JsonObject:
            if not isinstance(connection.server_properties.get("headrace_id"), str):
                raise OptionError(
                    "option 'queue': this broker has no leases; give option 'spoolDirectory', a "
                    "durable directory that the driver and all executors share"
                )
            return requests(connection).ask(
                f"lease.{request}", queue=options.queue, group=options.group, **fields
            )

        return run_with_retry(options.uri, options.reconnect_timeout_s, ask, Purpose.ASK)

    def _raise_error(self, refused: RequestRefused) -> NoReturn:
        """Raise the error of the query for a refused request."""
        if refused.code == "conflict":
            raise GroupInUseError(
                f"option 'group': {refused.text}; another query took over"
            ) from None
        if refused.code == "gone":
            raise DataLossError(
                f"{refused.text}: the checkpoint of this query is an old one, or another query "
                "used its group"
            ) from None
        if refused.code in ("precondition", "limit"):
            raise OffsetError(f"queue {self.options.queue!r}: {refused.text}") from None
        raise OptionError(f"option 'queue': {refused.text}") from None
