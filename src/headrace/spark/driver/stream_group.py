# SPDX-License-Identifier: Apache-2.0
"""The group of a streaming read of streams, at its broker: its first and committed positions.

A query reads by the offsets of its checkpoint. The group shows them to operators and to other
programs, stores the offset that "latest" meant when the query began, and excludes a second query.
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
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.survey import Survey
    from headrace.untyped import Json, JsonObject

CLAIM_PAUSE_S: Final = 0.25


class StreamGroup:
    """One group on the streams of one query; see `planner.OffsetStore`."""

    def __init__(
        self,
        options: ReadOptions,
        survey: Survey,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self._survey = survey
        self._clock = clock
        self._sleep = sleep

    def begin(self, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Store the first position of the group in each stream; return its initial positions.

        A group with committed positions is of an earlier query, and begins again.
        """
        groups = self._ask("group.begin", positions=start, ids=ids, pin=self.options.pin)
        again = [group["stream"] for group in groups if group["committed"] is not None]
        if again:
            self._wait("group.delete", streams=again)
            restarted_start = {stream: start[stream] for stream in again}
            restarted_ids = {stream: ids[stream] for stream in again}
            restarted = self._ask(
                "group.begin", positions=restarted_start, ids=restarted_ids, pin=self.options.pin
            )
            groups = [group for group in groups if group["committed"] is None] + restarted
        return {group["stream"]: group["initial"] for group in groups}

    def join(self, owner: str, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Claim the group on some streams; return its position in each.

        In a new stream the group begins at `start`.
        """
        groups = self._wait("group.claim", streams=list(start), ids=ids, owner=owner)
        fresh: dict[str, int] = {
            group["stream"]: start[group["stream"]]
            for group in groups
            if group["initial"] is None and group["committed"] is None
        }
        if fresh:
            fresh_ids = {stream: ids[stream] for stream in fresh}
            self._ask("group.begin", positions=fresh, ids=fresh_ids, pin=self.options.pin)
        positions: dict[str, int] = {group["stream"]: group["position"] for group in groups}
        return {**positions, **fresh}

    def commit(
        self, owner: str, positions: Mapping[str, int], ids: Mapping[str, int]
    ) -> dict[str, int]:
        """Commit the positions of finished batches; return the positions of the group."""
        groups = self._ask("group.commit", positions=positions, ids=ids, owner=owner)
        return {group["stream"]: group["position"] for group in groups}

    def _wait(self, what: str, **fields: Json) -> list[JsonObject]:
        """Call `_ask`; repeat it for `group_timeout_s` while the group has another owner."""
        until = self._clock() + self.options.group_timeout_s
        while True:
            try:
                return self._ask(what, **fields)
            except GroupInUseError:
                if self._clock() >= until:
                    raise
            self._sleep(CLAIM_PAUSE_S)

    def _ask(self, what: str, **fields: Json) -> list[JsonObject]:
        if not self._survey.identity():
            raise OptionError("option 'group' needs Headrace as the broker")
        try:
            answer = self._survey.ask(what, group=self.options.group, **fields)
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
