# SPDX-License-Identifier: Apache-2.0
"""The group of a streaming read at its broker: first and committed positions in each stream.

A query reads by the offsets of its checkpoint. The group shows these offsets to operators and other
programs. It stores the offset that "latest" meant when the query began. It also prevents a second
query from reading as the same group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.client.requests import RequestRefused
from headrace.columns.errors import GroupInUseError
from headrace.columns.options.kinds import OptionError
from headrace.columns.schema.offsets import OffsetError

if TYPE_CHECKING:
    from headrace.columns.broker_streams import BrokerStreams
    from headrace.columns.options.options import ReadOptions
    from headrace.untyped import Json, JsonObject

CLAIM_PAUSE_S: Final = 0.25  # The pause between two requests while the group has another owner.


class StreamGroup:
    """The group of one query at its broker; it implements `planner.OffsetStore`."""

    def __init__(
        self,
        options: ReadOptions,
        streams: BrokerStreams,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self._streams = streams
        self._clock = clock
        self._sleep = sleep

    def begin(self, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Store the first positions of the group if it has none; return its first positions.

        In a stream where the group has a committed position, it belongs to an earlier query. It is
        deleted there and begins again.
        """
        groups = self._request("group.begin", positions=start, ids=ids, pin=self.options.pin)
        restarted_streams = [group["stream"] for group in groups if group["committed"] is not None]
        if restarted_streams:
            self._request_until_free("group.delete", streams=restarted_streams)
            restarted_start = {stream: start[stream] for stream in restarted_streams}
            restarted_ids = {stream: ids[stream] for stream in restarted_streams}
            restarted = self._request(
                "group.begin", positions=restarted_start, ids=restarted_ids, pin=self.options.pin
            )
            groups = [group for group in groups if group["committed"] is None] + restarted
        return {group["stream"]: group["initial"] for group in groups}

    def join(self, owner: str, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Claim the group on the streams of `start`; return its position in each.

        In a stream that is new to the group, its position is the one in `start`.
        """
        groups = self._request_until_free("group.claim", streams=list(start), ids=ids, owner=owner)
        new_positions: dict[str, int] = {
            group["stream"]: start[group["stream"]]
            for group in groups
            if group["initial"] is None and group["committed"] is None
        }
        if new_positions:
            new_ids = {stream: ids[stream] for stream in new_positions}
            self._request("group.begin", positions=new_positions, ids=new_ids, pin=self.options.pin)
        positions: dict[str, int] = {group["stream"]: group["position"] for group in groups}
        return {**positions, **new_positions}

    def commit(
        self, owner: str, positions: Mapping[str, int], ids: Mapping[str, int]
    ) -> dict[str, int]:
        """Commit the positions of finished batches; return the positions of the group."""
        groups = self._request("group.commit", positions=positions, ids=ids, owner=owner)
        return {group["stream"]: group["position"] for group in groups}

    def _request_until_free(self, operation: str, **fields: Json) -> list[JsonObject]:
        """Call `_request`; repeat it for `group_timeout_s` while the group has another owner."""
        deadline_s = self._clock() + self.options.group_timeout_s
        while True:
            try:
                return self._request(operation, **fields)
            except GroupInUseError:
                if self._clock() >= deadline_s:
                    raise
            self._sleep(CLAIM_PAUSE_S)

    def _request(self, operation: str, **fields: Json) -> list[JsonObject]:
        """Send a request about the group; return its state in each stream."""
        if not self._streams.identity():
            raise OptionError("option 'group' needs Headrace as the broker")
        try:
            answer = self._streams.request(operation, group=self.options.group, **fields)
        except RequestRefused as refused:
            if refused.code == "conflict":
                raise GroupInUseError(
                    f"option 'group': {refused.text}: another query is using it"
                ) from None
            if refused.code in ("gone", "not-found", "precondition"):
                raise OffsetError(f"option 'group': {refused.text}") from None
            raise OptionError(f"option 'group': {refused.text}") from None
        groups: list[JsonObject] = answer["groups"]
        return groups
