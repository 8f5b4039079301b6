# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts on a disk that dies, and what was told of each message until it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.model.vhost.definitions import NoDefinitions, QueueRecord, SavedDefinitions
from support.disks.crash_disk import JournalLives
from support.stored_message import stored_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.model.message import Message

MARK = b"\x00\xffnumber:"


class Definitions(NoDefinitions):
    """Queues that survive, each from when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, QueueRecord] = {}

    def load(self) -> SavedDefinitions:
        return SavedDefinitions([], list(self.queues.values()), [])

    def save_queue(self, record: QueueRecord) -> int:
        number = super().save_queue(record)
        self.queues[number] = record._replace(id=number)
        return number

    def delete_queue(self, queue_id: int) -> None:
        self.queues.pop(queue_id, None)


class Run(JournalLives):
    """Notes what was told of each message."""

    gone = "gone"  # The state of a message that was never there.

    def __init__(self, seed: int) -> None:
        self.definitions = Definitions()
        self.told: dict[int, list[tuple[str, int]]] = {}  # States, and where each is durable.
        self.doing: dict[
            int, str
        ] = {}  # States of messages by operations in progress, not reported yet.
        super().__init__(seed)

    def tell(self, numbers: Sequence[int], state: str) -> None:
        for number in numbers:
            self.told.setdefault(number, []).append((state, self.journal.appended))
            self.doing.pop(number, None)

    def live(self) -> None:
        super().live()
        self.doing = {}

    def allowed(self, number: int, synced: int) -> set[str]:
        """Return the states that a message may be in after a death."""
        states = self.told[number]
        durable = [k for k, (_, at) in enumerate(states) if at <= synced]
        allowed = {said for said, _ in states[durable[-1] if durable else 0 :]}
        if not durable:
            allowed.add(self.gone)
        if number in self.doing:
            allowed.add(self.doing[number])
        return allowed


def numbered(number: int, size: int, headers: Mapping[str, Any] | None = None) -> Message:
    """Return a persistent message with its number, and so many octets behind that."""
    body = MARK + number.to_bytes(8, "big") + bytes(size)
    return stored_message(body, delivery_mode=2, headers=None if headers is None else {**headers})


def number_in(data: bytes) -> int:
    at = data.index(MARK) + len(MARK)
    return int.from_bytes(data[at : at + 8], "big")


def number_of(message: Message) -> int:
    assert message.data is not None
    return number_in(message.data)
