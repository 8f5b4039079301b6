# SPDX-License-Identifier: Apache-2.0
"""Requests about consumer groups (:mod:`headrace.model.stream.consumer_groups`).

A request names one stream (``stream``, ``position``, ``id``) or several (``positions`` and ``ids``,
objects by stream, or ``streams``, a list). If it fails for one stream, no group changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall, RequestRefused
from headrace.model.stream.consumer_groups import NAME_BYTES_MAX, ConsumerGroup, ConsumerGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model.stream.stream import Stream

STREAMS_MAX = 1000  # The maximum streams of one request.
LIST_MAX = 500  # The maximum groups of one answer.
GROUP_BYTES = 1024  # The maximum size of a stored group.


def begin(call: RequestCall) -> RequestAnswer:
    """Store the initial positions of groups that do not exist yet."""
    name, groups = group_name(call), consumer_groups(call)
    pin = None if call.request.get("pin") is None else call.flag("pin")

    def step(stream: Stream, position: int) -> ConsumerGroup:
        return groups.begin(stream, name, position, pin=pin)

    positions = read_positions(call)
    require_room(call, name, positions)
    return change_all(call, positions, step)


def commit(call: RequestCall) -> RequestAnswer:
    """Commit the positions that a reader has reached."""
    name, owner, force = group_name(call), read_owner(call, ""), call.flag("force")
    now_ms, groups = call.vhost.counters.now_ms, consumer_groups(call)

    def step(stream: Stream, position: int) -> ConsumerGroup:
        return groups.commit(stream, name, position, owner=owner, force=force, now_ms=now_ms)

    positions = read_positions(call)
    for stream, position in positions.items():
        groups.check(stream, name, position, owner=owner, force=force, now_ms=now_ms)
    require_room(call, name, positions)
    return change_all(call, positions, step)


def get(call: RequestCall) -> RequestAnswer:
    """Return the state of groups."""
    name = group_name(call)
    return describe_all(
        call, [consumer_groups(call).find(stream, name) for stream in find_streams(call)]
    )


def delete(call: RequestCall) -> RequestAnswer:
    """Delete groups, so that their committed positions are lost."""
    name, force = group_name(call), call.flag("force")
    now_ms, groups = call.vhost.counters.now_ms, consumer_groups(call)
    streams = find_streams(call)
    for stream in streams:
        group = groups.find(stream, name)
        if not force:
            groups.check_owner(group, "", now_ms)
    return change_all(
        call,
        dict.fromkeys(streams, 0),
        lambda stream, _: groups.delete(stream, name, force=True, now_ms=now_ms),
    )


def claim(call: RequestCall) -> RequestAnswer:
    """Claim groups for an owner."""
    name, owner, force = group_name(call), read_owner(call), call.flag("force")
    now_ms, groups = call.vhost.counters.now_ms, consumer_groups(call)

    def step(stream: Stream, _: int) -> ConsumerGroup:
        return groups.claim(stream, name, owner, call.connection, force=force, now_ms=now_ms)

    streams = find_streams(call)
    for stream in streams:
        groups.check_claim(stream, name, owner, force=force, now_ms=now_ms)
    require_room(call, name, streams)
    return change_all(call, dict.fromkeys(streams, 0), step)


def release(call: RequestCall) -> RequestAnswer:
    """Release the claims of an owner on groups."""
    name, owner, groups = group_name(call), read_owner(call), consumer_groups(call)
    streams = find_streams(call)
    for stream in streams:
        groups.find(stream, name)
    return change_all(
        call,
        dict.fromkeys(streams, 0),
        lambda stream, _: groups.release(stream, name, owner),
    )


def list_page(call: RequestCall) -> RequestAnswer:
    """Return the groups of streams that the user may read, in slices."""
    after = call.request.get("after", [0, ""])
    if not (
        isinstance(after, list)
        and len(after) == 2
        and isinstance(after[0], int)
        and isinstance(after[1], str)
    ):
        call.refuse("bad-request", "'after' must be the 'next' of an answer")
    groups = consumer_groups(call)
    only = call.stream().id if "stream" in call.request else 0
    page = groups.page((after[0], after[1]), LIST_MAX, only)
    allowed = call.context.access.allowed
    described = [
        describe(call, group)
        for group in page
        if allowed(call.user, call.vhost.name, "read", group.stream.name)
    ]
    answer: RequestAnswer = {"groups": described}
    if len(page) == LIST_MAX:
        answer["next"] = [page[-1].stream.id, page[-1].name]
    return answer


def require_room(call: RequestCall, name: str, streams: Iterable[Stream]) -> None:
    """Refuse new groups beyond the limits, before anything is changed."""
    groups = consumer_groups(call)
    more = sum(not groups.exists(stream, name) for stream in streams)
    if more:
        groups.check_room(more)
        call.vhost.facts.check_room(more, more * GROUP_BYTES)


def change_all(
    call: RequestCall,
    positions: dict[Stream, int],
    step: Callable[[Stream, int], ConsumerGroup | None],
) -> RequestAnswer:
    """Change the group of each stream in one transaction; return the groups."""
    store = call.vhost.store
    store.begin()
    try:
        return describe_all(
            call, [step(stream, position) for stream, position in positions.items()]
        )
    finally:
        store.commit()


def describe_all(call: RequestCall, groups: Sequence[ConsumerGroup | None]) -> RequestAnswer:
    """Return the answer that describes the groups of a request."""
    described = [describe(call, group) for group in groups if group is not None]
    if "stream" in call.request:
        return described[0] if described else {}
    return {"groups": described}


def describe(call: RequestCall, group: ConsumerGroup) -> RequestAnswer:
    """Return a group as a JSON object."""
    lag, lag_octets = group.lag()
    return {
        "stream": group.stream.name,
        "id": group.stream.id,
        "group": group.name,
        "initial": group.initial,
        "committed": group.committed,
        "committed_ms": group.moved_ms,
        "position": group.position,
        "pin": group.pin,
        "owner": group.owner,
        "claimed": consumer_groups(call).is_claimed(group, call.vhost.counters.now_ms),
        "lag": lag,
        "lag_octets": lag_octets,
        "gone": group.removed_count(),
    }


# --- Fields -----------------------------------------------------------------------------------


def consumer_groups(call: RequestCall) -> ConsumerGroups:
    """Return the groups of the virtual host."""
    groups: ConsumerGroups = call.vhost.groups
    return groups


def group_name(call: RequestCall) -> str:
    """Return the name of the group."""
    return call.text("group", bytes_max=NAME_BYTES_MAX)


def read_owner(call: RequestCall, default: str | None = None) -> str:
    """Return the token of an owner."""
    return call.text("owner", default, bytes_max=NAME_BYTES_MAX)


def find_streams(call: RequestCall) -> list[Stream]:
    """Return the streams that a request names."""
    if "stream" in call.request:
        name = call.text("stream")
        names: object = [name]
        ids: object = {name: call.request["id"]} if "id" in call.request else {}
    else:
        names, ids = call.request.get("streams"), call.request.get("ids") or {}
        if names is None:
            positions = call.request.get("positions")
            names = list(positions) if isinstance(positions, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        call.refuse("bad-request", "'stream', 'streams' or 'positions' is missing")
    if len(names) > STREAMS_MAX or len(set(names)) < len(names):
        call.refuse("bad-request", f"each stream must be named once, {STREAMS_MAX} at most")
    if not isinstance(ids, dict):
        call.refuse("bad-request", "'ids' is not an object")
    streams = []
    for name in names:
        stream = RequestCall(call.context, call.vhost, call.connection, {"stream": name}).stream()
        if name in ids and ids[name] != stream.id:
            raise RequestRefused(
                "gone",
                f"stream '{name}' was deleted and declared again: its id is {stream.id}, "
                f"not {ids[name]!r}",
            )
        streams.append(stream)
    return streams


def read_positions(call: RequestCall) -> dict[Stream, int]:
    """Return the streams that a request names, each with its position."""
    streams = find_streams(call)
    if "stream" in call.request:
        return {streams[0]: resolve_position(streams[0], call.request.get("position"))}
    positions = call.request.get("positions")
    if not isinstance(positions, dict):
        call.refuse("bad-request", "'positions' is missing or not an object")
    return {stream: resolve_position(stream, positions.get(stream.name)) for stream in streams}


def resolve_position(stream: Stream, position: object) -> int:
    """Return the offset of a number, a word, or a time."""
    if isinstance(position, int) and not isinstance(position, bool) and 0 <= position < 1 << 63:
        return position
    if position in ("first", "last", "next"):
        return stream.resolve(position)
    time_ms = position.get("timestamp_ms") if isinstance(position, dict) else None
    if isinstance(time_ms, int) and 0 <= time_ms < 1 << 60:
        return int(stream.log.offset_at(time_ms))
    raise RequestRefused(
        "bad-request",
        f"the position for stream '{stream.name}' is not an offset, first, last, next "
        'or {"timestamp_ms": ...}',
    )


HANDLERS: dict[str, Handler] = {
    "group.begin": begin,
    "group.claim": claim,
    "group.commit": commit,
    "group.delete": delete,
    "group.get": get,
    "group.list": list_page,
    "group.release": release,
}
