# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: positions of cooperating stream readers, stored by the broker.

A group has two positions. The *initial* one is the offset at which the group began; it never
changes. The *committed* one is the offset below which its readers have processed all records. Both
are durable facts of the virtual host, and can change in one transaction with messages.

An owner may *claim* a group. The owner is a token that a program chooses and uses again after a
restart. A claim is live while its connection is open, and for ``owner_ms`` after that. Another
owner may claim the group when the claim has ended, or by force; the same owner at any time.

A group may *pin* the stream: retention keeps the records that the group has not read, as long as
the stream exceeds its own limit by no more than ``pin_bytes_max`` (:class:`.log.StreamLog`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from headrace.model.errors import IllegalState, NotFound, PreconditionFailed, ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.keyvalue import Facts
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.stream import Stream

log = logging.getLogger(__name__)

OWNER_MS = 30_000
PIN_BYTES_MAX = 1 << 30
NAME_BYTES_MAX = 255  # Bytes of a group's name and of an owner's token.
GROUPS_MAX = 20_000  # Groups of one virtual host.
PREFIX = b"group/"


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A named position in a stream that the readers of the group share, and the claim to it."""

    stream: Stream
    name: str
    initial: int | None = None
    committed: int | None = None
    moved_ms: int = 0  # The time of the last change of ``committed``.
    pin: bool = False
    owner: str = ""  # The token of the last claim.
    holder: object = field(default=None, repr=False)  # The connection of the last claim.
    held_ms: int = 0  # Without a holder: the time at which the claim ends.
    committed_records: int = 0  # Records that readers committed since the broker's start.

    @property
    def position(self) -> int:
        """The offset at which the group continues."""
        if self.committed is not None:
            return self.committed
        return self.initial if self.initial is not None else self.stream.log.first_offset

    def lag(self) -> tuple[int, int]:
        """Return the lag: unread messages and, roughly, bytes that the stream still has."""
        stream_log = self.stream.log
        position = max(self.position, stream_log.first_offset)
        return max(0, stream_log.committed_offset - position), stream_log.bytes_from(position)

    def removed_count(self) -> int:
        """Return the number of messages that retention removed before they were read."""
        return max(0, self.stream.log.first_offset - self.position)

    def count_committed(self, position: int) -> None:
        """Count the records that a commit of ``position`` adds to those read."""
        start = self.initial if self.committed is None else self.committed
        if start is not None:  # The start of readers that only commit is unknown.
            start = max(start, self.stream.log.first_offset)
            self.committed_records += max(0, position - start)

    def key(self) -> bytes:
        """Return the key of the group's fact."""
        return group_key_prefix(self.stream) + self.name.encode()

    def encode(self) -> bytes:
        """Return the value of the group's fact."""
        fields: dict[str, object] = {"initial": self.initial, "committed": self.committed}
        fields |= {"moved": self.moved_ms, "pin": self.pin, "owner": self.owner}
        return json.dumps(fields, separators=(",", ":")).encode()


class ConsumerGroups:
    """The consumer groups of one virtual host."""

    def __init__(self, facts: Facts) -> None:
        self.owner_ms = OWNER_MS
        self.pin_bytes_max = PIN_BYTES_MAX
        self._facts = facts
        self._groups: dict[int, dict[str, ConsumerGroup]] = {}  # Groups by stream id and name.
        self._count = 0
        self._claims: dict[object, dict[ConsumerGroup, None]] = {}  # Claimed groups by holder.

    def restore(self, queues: Iterator[Queue], now_ms: int) -> None:
        """Restore the groups from their facts, once the streams are loaded."""
        streams = {queue.id: cast("Stream", queue) for queue in queues if queue.is_stream}
        for key, value in list(self._facts.items(PREFIX)):
            number, _, name = key[len(PREFIX) :].partition(b"/")
            stream = streams.get(int(number)) if number.isdigit() else None
            if stream is None:  # The stream was deleted just before a crash.
                self._facts.put(key, None)
                continue
            try:
                fields = json.loads(value)
                group = ConsumerGroup(
                    stream,
                    name.decode(),
                    fields["initial"],
                    fields["committed"],
                    fields["moved"],
                    fields["pin"],
                    fields["owner"],
                    held_ms=now_ms + self.owner_ms,
                )
            except (ValueError, KeyError, TypeError) as error:
                log.error("the fact %r cannot be read and is left out: %r", key, error)
                continue
            self._add(group)
        for stream in streams.values():
            self._pin(stream)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        """Iterate over all groups in no particular order."""
        for groups in self._groups.values():
            yield from groups.values()

    def by_stream(self) -> Iterator[list[ConsumerGroup]]:
        """Yield a list of the groups of each stream; groups may change between two lists."""
        for groups in list(self._groups.values()):
            yield list(groups.values())

    def find_all(self, stream: Stream) -> list[ConsumerGroup]:
        """Return the groups of a stream, sorted by name."""
        groups = self._groups.get(stream.id, {})
        return [groups[name] for name in sorted(groups)]

    def page(
        self, after: tuple[int, str], count_max: int, stream_id: int = 0
    ) -> list[ConsumerGroup]:
        """Return at most ``count_max`` groups after ``after``, sorted by stream id and name.

        With ``stream_id`` return only groups of that stream.
        """
        page: list[ConsumerGroup] = []
        ids = sorted(self._groups) if not stream_id else [stream_id]
        for number in ids:
            if number < after[0]:
                continue
            groups = self._groups.get(number, {})
            names = sorted(groups)
            if number == after[0]:
                names = [name for name in names if name > after[1]]
            page += [groups[name] for name in names[: count_max - len(page)]]
            if len(page) == count_max:
                break
        return page

    def exists(self, stream: Stream, name: str) -> bool:
        """Return True if a group exists."""
        return name in self._groups.get(stream.id, {})

    def find(self, stream: Stream, name: str) -> ConsumerGroup:
        """Return a group.

        Raises:
            NotFound: the group does not exist.
        """
        group = self._groups.get(stream.id, {}).get(name)
        if group is None:
            raise NotFound(f"no group '{name}' of stream '{stream.name}'")
        return group

    def begin(
        self, stream: Stream, name: str, position: int, *, pin: bool | None = None
    ) -> ConsumerGroup:
        """Return a group, starting it at ``position`` if it does not exist.

        ``pin`` sets whether the group pins the stream; None does not change this.

        Raises:
            ResourceError: there are too many groups or facts.
        """
        group = self._groups.get(stream.id, {}).get(name) or ConsumerGroup(stream, name)
        if group.initial is None:
            group.initial = position
        if pin is not None:
            group.pin = pin
        self._save(group)
        return group

    def commit(
        self,
        stream: Stream,
        name: str,
        position: int,
        *,
        owner: str = "",
        force: bool = False,
        now_ms: int,
    ) -> ConsumerGroup:
        """Advance the committed position of a group; with ``force``, set it.

        Without ``force`` a lower position changes nothing. A missing group is made.

        Raises:
            IllegalState: another owner has a live claim.
            PreconditionFailed: the position is beyond the stream's end.
            ResourceError: there are too many groups or facts.
        """
        self.check(stream, name, position, owner=owner, force=force, now_ms=now_ms)
        group = self._groups.get(stream.id, {}).get(name) or ConsumerGroup(stream, name)
        before = group.committed
        if before is None or position > before or (force and position != before):
            if not force:  # An operator sets a forced position: no reader has read up to it.
                group.count_committed(position)
            group.committed = position
            group.moved_ms = now_ms
            self._save(group)
        return group

    def check(
        self, stream: Stream, name: str, position: int, *, owner: str, force: bool, now_ms: int
    ) -> None:
        """Check a commit: raise the errors of :meth:`commit`."""
        end = stream.log.next_offset
        if position > end:
            raise PreconditionFailed(
                f"position {position} is beyond the end of stream '{stream.name}', {end}"
            )
        group = self._groups.get(stream.id, {}).get(name)
        if group is not None and not force:
            self.check_owner(group, owner, now_ms)

    def delete(self, stream: Stream, name: str, *, force: bool = False, now_ms: int) -> None:
        """Delete a group.

        Raises:
            NotFound: the group does not exist.
            IllegalState: the group has a live claim, and ``force`` is not set.
        """
        group = self.find(stream, name)
        if not force:
            self.check_owner(group, "", now_ms)
        self._release_holder(group)
        del self._groups[stream.id][name]
        self._count -= 1
        if not self._groups[stream.id]:
            del self._groups[stream.id]
        self._facts.put(group.key(), None)
        self._pin(stream)

    def delete_all(self, stream: Stream) -> None:
        """Delete the groups of a deleted stream."""
        for group in self._groups.pop(stream.id, {}).values():
            self._release_holder(group)
            self._count -= 1
        self._facts.remove_all(group_key_prefix(stream))

    # --- Claims -------------------------------------------------------------------------------

    def claim(
        self,
        stream: Stream,
        name: str,
        owner: str,
        holder: object,
        *,
        force: bool = False,
        now_ms: int,
    ) -> ConsumerGroup:
        """Claim a group, making it if it does not exist.

        Raises:
            IllegalState: another owner has a live claim, and ``force`` is not set.
            ResourceError: there are too many groups or facts.
        """
        self.check_claim(stream, name, owner, force=force, now_ms=now_ms)
        group = self._groups.get(stream.id, {}).get(name) or ConsumerGroup(stream, name)
        self._release_holder(group)
        group.owner = owner
        self._save(group)
        group.holder = holder
        self._claims.setdefault(holder, {})[group] = None
        return group

    def check_claim(
        self, stream: Stream, name: str, owner: str, *, force: bool, now_ms: int
    ) -> None:
        """Check a claim: raise the errors of :meth:`claim`."""
        group = self._groups.get(stream.id, {}).get(name)
        if group is not None and not force:
            self.check_owner(group, owner, now_ms)

    def release(self, stream: Stream, name: str, owner: str) -> None:
        """Release a claim of ``owner``; a claim of another owner does not change."""
        group = self.find(stream, name)
        if group.owner == owner:
            self._release_holder(group)
            group.owner = ""
            group.held_ms = 0
            self._save(group)

    def is_claimed(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Return True if a group has a live claim."""
        return bool(group.owner) and (group.holder is not None or now_ms < group.held_ms)

    def on_holder_end(self, holder: object, now_ms: int) -> None:
        """Start the timeouts of the claims of a closed connection."""
        for group in self._claims.pop(holder, ()):
            group.holder = None
            group.held_ms = now_ms + self.owner_ms

    def check_owner(self, group: ConsumerGroup, owner: str, now_ms: int) -> None:
        """Raise IllegalState if another owner has a live claim on a group."""
        if owner == group.owner or not self.is_claimed(group, now_ms):
            return
        claim = f"group '{group.name}' of stream '{group.stream.name}' is claimed by"
        if group.holder is not None:
            raise IllegalState(f"{claim} '{group.owner}', which is connected")
        left_s = -(-(group.held_ms - now_ms) // 1000)
        raise IllegalState(f"{claim} '{group.owner}' for {left_s} more seconds")

    def _release_holder(self, group: ConsumerGroup) -> None:
        claims = self._claims.get(group.holder)
        if claims is not None:
            claims.pop(group, None)
            if not claims:
                del self._claims[group.holder]
        group.holder = None

    def check_room(self, more: int) -> None:
        """Check that ``more`` groups can be added.

        Raises:
            ResourceError: there would be too many.
        """
        if self._count + more > GROUPS_MAX:
            raise ResourceError(f"a virtual host may have at most {GROUPS_MAX} groups")

    def limit_pins(self, bytes_max: int) -> None:
        """Set the bytes that streams may keep for groups, also for groups that do not move."""
        self.pin_bytes_max = bytes_max
        for groups in list(self._groups.values()):
            stream = next(iter(groups.values())).stream
            if stream.log.pinned_offset >= 0:
                stream.pin(stream.log.pinned_offset, bytes_max)

    # --- Inside -------------------------------------------------------------------------------

    def _save(self, group: ConsumerGroup) -> None:
        if group.name not in self._groups.get(group.stream.id, {}):
            self.check_room(1)
        self._facts.put(group.key(), group.encode())
        self._add(group)
        if group.pin or group.stream.log.pinned_offset >= 0:
            self._pin(group.stream)

    def _add(self, group: ConsumerGroup) -> None:
        groups = self._groups.setdefault(group.stream.id, {})
        self._count += group.name not in groups
        groups[group.name] = group

    def _pin(self, stream: Stream) -> None:
        """Set the offset below which retention may remove records."""
        groups = self._groups.get(stream.id, {}).values()
        pinned = min((group.position for group in groups if group.pin), default=-1)
        if pinned != stream.log.pinned_offset:
            stream.pin(pinned, self.pin_bytes_max)


def group_key_prefix(stream: Stream) -> bytes:
    """Return the key prefix of a stream's groups."""
    return PREFIX + b"%d/" % stream.id
