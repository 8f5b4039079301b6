# SPDX-License-Identifier: Apache-2.0
"""The group of a streaming read of streams, at its broker: where it began and how far it is.

The offsets of the checkpoint are what a query goes by. The group shows them to operators and to
other programs, remembers what "latest" was when the query began, and keeps a second query off.
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
        """Remember where the group begins in each stream; return where it began at first.

        A group that is past its beginning is from an earlier query: it begins again.
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
        """Become the owner on some streams; return how far the group is in each.

        Where it was never before it begins at `start`.
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
        """The query is done up to these positions; return how far the group is then."""
        groups = self._ask("group.commit", positions=positions, ids=ids, owner=owner)
        return {group["stream"]: group["position"] for group in groups}

    def _wait(self, what: str, **fields: Json) -> list[JsonObject]:
        """As `_ask`; while another owner has the group, again for some time."""
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
