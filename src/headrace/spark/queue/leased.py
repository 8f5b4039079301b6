# SPDX-License-Identifier: Apache-2.0
"""The messages of a queue by leases, as Headrace gives them."""

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
from headrace.spark.queue.planner import LeaseState

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.columns.options.options import ReadOptions
    from headrace.untyped import Json, JsonObject

log = logging.getLogger(__name__)

CLAIM_PAUSE_S: Final = 0.25
DISK_PAUSE_S: Final = 5.0
OWNER_GONE_S: Final = 30  # An owner stays the owner for this long without a connection.


class Leased:
    """The lease of one queue for one group; see `planner.QueueLease`."""

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
        self.rejects = 0  # Messages rejected in advance, in the broker's last answer.

    def stream(self) -> str:
        """Return the stream that has the leased messages, with their numbers as offsets."""
        if not self._stream and self.info() is None:
            options = self.options
            raise DataLossError(
                f"group {options.group!r} has no lease of queue {options.queue!r} any more"
            )
        return self._stream

    def claim(self, owner: str) -> LeaseState:
        """Become the owner; wait for another owner to leave, up to a GroupInUseError."""
        options = self.options
        until = self._clock() + options.group_timeout_s
        while True:
            try:
                return self._state(
                    self._send("claim", owner=owner, timeout_s=OWNER_GONE_S, on_timeout="keep")
                )
            except RequestRefused as refused:
                if refused.code != "conflict":
                    self._fail(refused)
                if self._clock() >= until:
                    raise GroupInUseError(
                        f"option 'group': {refused.text}; another query reads queue "
                        f"{options.queue!r} as group {options.group!r}"
                    ) from None
            self._sleep(CLAIM_PAUSE_S)

    def leave(self, owner: str) -> None:
        """Give up the ownership."""
        self._ask("leave", owner=owner)

    def info(self) -> LeaseState | None:
        """Return the state of the lease; None if there was never one."""
        try:
            return self._state(self._send("info"))
        except RequestRefused as refused:
            if refused.code == "not-found" and "lease" in refused.text:
                return None
            self._fail(refused)

    def take(self, owner: str, first: int, records: int, octets: int) -> int:
        """Lease messages, numbered from `first` on; return the number after the last.

        While the broker's disk is full no message can be leased, and the call waits.
        """
        while True:
            try:
                last: int = self._send(
                    "take", owner=owner, first=first, messages=records, octets=octets
                )["last"]
                return last
            except RequestRefused as refused:
                if refused.code != "limit":
                    self._fail(refused)
                log.warning("the query waits: %s", refused.text)
            self._sleep(DISK_PAUSE_S)

    def settle(self, owner: str, upto: int) -> int:
        """Settle the messages below `upto`; return the first number that is not settled."""
        settled: int = self._ask("settle", owner=owner, upto=upto)["settled"]
        return settled

    def _state(self, answer: JsonObject) -> LeaseState:
        self._stream = answer["stream"]
        self.rejects = answer["rejects"]
        decoding = self.options.decoding
        if decoding is not None and decoding.rejects and not answer["dead_letters"]:
            raise OptionError(
                f"option 'mode' is 'DEADLETTER': queue {self.options.queue!r} has no dead-letter "
                "exchange (x-dead-letter-exchange): give it one, or set option 'deadLetterExchange'"
            )
        return LeaseState(*(answer[name] for name in LeaseState._fields))

    def _ask(self, what: str, **fields: Json) -> JsonObject:
        try:
            return self._send(what, **fields)
        except RequestRefused as refused:
            self._fail(refused)

    def _send(self, what: str, **fields: Json) -> JsonObject:
        options = self.options

        def ask(connection: blocking.Connection) -> JsonObject:
            if not isinstance(connection.server_properties.get("headrace_id"), str):
                raise OptionError(
                    "option 'queue': this broker has no leases; give option 'spoolDirectory', a "
                    "durable directory that the driver and all executors share"
                )
            return requests(connection).ask(
                f"lease.{what}", queue=options.queue, group=options.group, **fields
            )

        return run_with_retry(options.uri, options.reconnect_timeout_s, ask, Purpose.ASK)

    def _fail(self, refused: RequestRefused) -> NoReturn:
        """Raise the query's error for a refusal."""
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
