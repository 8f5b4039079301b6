# SPDX-License-Identifier: Apache-2.0
"""Groups of readers: their positions in streams, kept by Headrace (docs/guides/groups.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.requests import Answer, Requests

Position = int | str | datetime  # An offset, `first`, `last` or `next`, or a moment.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The position of one group in one stream."""

    stream: str
    id: int  # The stream's id; a stream declared again has another.
    group: str
    initial: int | None  # Its first position; None if unknown.
    committed: int | None  # The offset after the last committed record; None before a commit.
    committed_ms: int  # The time of the last commit, in milliseconds since 1970.
    position: int  # The next offset of its readers.
    pin: bool  # True if retention keeps its unread records.
    owner: str  # The last owner.
    claimed: bool  # True while the owner's claim is live.
    lag: int  # The number of messages that the group has not read.
    lag_octets: int  # The approximate bytes of these messages.
    gone: int  # The number of messages that retention deleted before the group read them.


class Groups:
    """The groups of one name, on any streams; `list_groups` lists all.

    Several streams in one call change together or not at all. Every call may raise RequestRefused.
    """

    def __init__(self, requests: Requests, name: str) -> None:
        self.name = name
        self._requests = requests

    async def begin(
        self,
        positions: Mapping[str, Position],
        *,
        pin: bool | None = None,
        ids: Mapping[str, int] | None = None,
    ) -> dict[str, GroupState]:
        """Set the group's first position in each stream where it has none.

        `pin` keeps unread records from retention (None: unchanged). With `ids`, streams that were
        recreated are refused with code `gone`, here and in `commit`.
        """
        fields: dict[str, object] = {} if pin is None else {"pin": pin}
        return await self._ask(
            "group.begin", positions=_encode_positions(positions), ids=ids, **fields
        )

    async def commit(
        self,
        positions: Mapping[str, Position],
        *,
        owner: str = "",
        force: bool = False,
        ids: Mapping[str, int] | None = None,
    ) -> dict[str, GroupState]:
        """Move the committed positions forward; `force` sets any position, for any owner."""
        return await self._ask(
            "group.commit",
            positions=_encode_positions(positions),
            owner=owner,
            force=force,
            ids=ids,
        )

    async def get(self, streams: Iterable[str]) -> dict[str, GroupState]:
        """Return the group's positions; code `not-found` when a stream does not have the group."""
        return await self._ask("group.get", streams=list(streams))

    async def delete(self, streams: Iterable[str], *, force: bool = False) -> None:
        """Delete the group on these streams; `force` does it even while it is claimed."""
        await self._ask("group.delete", streams=list(streams), force=force)

    async def claim(
        self, streams: Iterable[str], owner: str, *, force: bool = False
    ) -> dict[str, GroupState]:
        """Make `owner` the owner, until some time after this connection ends.

        Code `conflict` when another owner's claim is live, unless `force` takes it away.
        """
        return await self._ask("group.claim", streams=list(streams), owner=owner, force=force)

    async def release(self, streams: Iterable[str], owner: str) -> None:
        """End the claim of `owner`; a claim of another owner stays."""
        await self._ask("group.release", streams=list(streams), owner=owner)

    async def _ask(self, request: str, **fields: object) -> dict[str, GroupState]:
        if fields.get("ids", 0) is None:
            del fields["ids"]
        answer = await self._requests.ask(request, group=self.name, **fields)
        return {state["stream"]: _parse_state(state) for state in answer["groups"]}


async def list_groups(requests: Requests, stream: str = "") -> AsyncIterator[GroupState]:
    """Yield the groups of a stream, or of all streams that the user may read."""
    fields: dict[str, object] = {"stream": stream} if stream else {}
    while True:
        answer = await requests.ask("group.list", **fields)
        for state in answer["groups"]:
            yield _parse_state(state)
        if "next" not in answer:
            return
        fields["after"] = answer["next"]


def _encode_positions(positions: Mapping[str, Position]) -> dict[str, object]:
    """Return positions as fields of a request."""
    fields: dict[str, object] = {}
    for stream, position in positions.items():
        if isinstance(position, datetime):
            if position.tzinfo is None:
                raise ValueError(f"a moment needs a time zone: {position!r}")
            fields[stream] = {"timestamp_ms": int(position.timestamp() * 1000)}
        else:
            fields[stream] = position
    return fields


def _parse_state(row: Answer) -> GroupState:
    return GroupState(**{name: row[name] for name in GroupState.__slots__})
