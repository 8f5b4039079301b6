# SPDX-License-Identifier: Apache-2.0
"""The judge of clients' notes: each law has a history that breaks it, and one that does not."""

import pytest

from support.client_history import HELD_MAX, Deed, Event, violations


def event(deed: Deed, number: int = 0, place: str = "q", **more: object) -> Event:
    """Return a note about a message of the publisher p."""
    return Event(deed, place, "p" if number else "", number)._replace(**more)  # type: ignore[arg-type]


def confirmed(*numbers: int, epoch: int = 0) -> list[Event]:
    return [
        one
        for number in numbers
        for one in (event(Deed.PUBLISH, number), event(Deed.CONFIRM, number, epoch=epoch))
    ]


def look(*numbers: int, place: str = "q", again: bool = True) -> list[Event]:
    shown = [event(Deed.SHOWN, number, place, redelivered=again) for number in numbers]
    return [event(Deed.LOOK, place=place), *shown, event(Deed.WHOLE, place=place)]


def transaction(*, acks: bool = True) -> list[Event]:
    """Publish 1 to two queues, and ack 9 of a third, in the transaction t."""
    parts = [event(Deed.PUBLISH, 1, place, transaction="t") for place in ("a", "b")]
    if acks:
        taken = [event(Deed.PUBLISH, 9, "c"), event(Deed.CONFIRM, 9, "c")]
        parts = [*taken, *parts, event(Deed.ACK, 9, "c", transaction="t")]
    return parts


def ended(deed: Deed) -> Event:
    return Event(deed, transaction="t")


def queues(a: bool, b: bool, c: bool) -> list[Event]:
    """Look at the three queues of the transaction."""
    return [
        *look(*([1] if a else []), place="a"),
        *look(*([1] if b else []), place="b"),
        *look(*([9] if c else []), place="c"),
    ]


def stream(*numbers: int, first: int = 0, deed: Deed = Deed.STREAMED) -> list[Event]:
    return [event(deed, n, "s", offset=offset) for offset, n in enumerate(numbers, first)]


LEAST = [event(Deed.PUBLISH, n, "s") for n in (1, 2, 3)]
COMMITTED = [ended(Deed.COMMIT), ended(Deed.COMMIT_OK)]

KEPT = {
    "confirmed, there": [*confirmed(1, 2), *look(1, 2)],
    "not confirmed, lost": [event(Deed.PUBLISH, 1), *look()],
    "acked, gone": [*confirmed(1), event(Deed.ACK, 1), *look()],
    "ack lost": [*confirmed(1), event(Deed.ACK, 1), *look(1), *look(1)],
    "delivered and acked in the look": [
        *confirmed(1),
        *[event(Deed.LOOK), event(Deed.DELIVER, 1), event(Deed.ACK, 1), event(Deed.WHOLE)],
    ],
    "deleted": [*confirmed(1), event(Deed.DECLARE_OK), event(Deed.DELETE), event(Deed.MISSING)],
    "settled, gone": [*confirmed(1), event(Deed.SETTLED, 1), *look()],
    "redelivered": [
        *confirmed(1),
        event(Deed.DELIVER, 1, session="x"),
        event(Deed.DELIVER, 1, session="y", redelivered=True),
    ],
    "a paused owner's delivery is read late": [
        *confirmed(1),
        event(Deed.DELIVER, 1, epoch=2),
        event(Deed.DELIVER, 1, epoch=1),
    ],
    "order": [*confirmed(1, 2), *(event(Deed.DELIVER, n, session="x") for n in (1, 2))],
    "what another consumer held comes later": [
        *confirmed(1, 2),
        event(Deed.DELIVER, 1, session="x"),
        event(Deed.DELIVER, 2, session="y"),
        event(Deed.DELIVER, 1, session="y", redelivered=True),
    ],
    "an owner that stood still sends what a turn had ready": [
        *confirmed(1, 2, 3),
        event(Deed.DELIVER, 1, session="x", epoch=2, at_s=10.0),
        event(Deed.DELIVER, 2, session="y", epoch=1, at_s=20.0),
        event(Deed.DELIVER, 3, session="y", epoch=1, at_s=20.1),
    ],
    "a relayed consumer knows no epoch": [
        *confirmed(1, 2),
        event(Deed.DELIVER, 1, session="x", epoch=2, at_s=10.0),
        event(Deed.DELIVER, 2, session="y", at_s=20.0),
    ],
    "epochs rise": [*confirmed(1, epoch=1), *confirmed(2, epoch=2)],
    "stream": [*LEAST, *stream(1, 2), *stream(1, 2, 3), event(Deed.READ, place="s")],
    "committed": [*transaction(), *COMMITTED, *queues(True, True, False)],
    "in doubt, happened": [*transaction(), ended(Deed.COMMIT), *queues(True, True, False)],
    "in doubt, not happened": [*transaction(), ended(Deed.COMMIT), *queues(False, False, True)],
    "never asked for": [*transaction(), *queues(False, False, True)],
}

BROKEN = {
    "q', 'p', 2) was confirmed and is lost": [*confirmed(1, 2), *look(1)],
    "q', 'p', 1) was confirmed and is lost": [
        *confirmed(1),
        event(Deed.ACK, 1),
        *look(1),  # The ack was lost, so that the message has to stay.
        *look(),
    ],
    "q was declared and is lost": [event(Deed.DECLARE_OK), event(Deed.MISSING)],
    "came back although its ack was durable": [
        *confirmed(1),
        event(Deed.SETTLED, 1),
        *look(1),
    ],
    "came after number 2": [
        *confirmed(1, 2),
        *(event(Deed.DELIVER, n, session="x") for n in (2, 1)),
    ],
    "q', 'p', 1) came after number 2": [
        *confirmed(1, 2),
        event(Deed.LOOK),
        *(event(Deed.SHOWN, n, session="x", redelivered=True) for n in (2, 1)),
        event(Deed.WHOLE),
    ],
    "came twice to x": [
        *confirmed(1),
        event(Deed.DELIVER, 1, session="x"),
        event(Deed.DELIVER, 1, session="x", redelivered=True),
    ],
    "came after number 2, and no consumer had held it": [
        *confirmed(1, 2),
        event(Deed.DELIVER, 2, session="x"),
        event(Deed.DELIVER, 1, session="x", redelivered=True),
    ],
    "was delivered by epoch 1, 5.0 s after it delivered first beside epoch 2": [
        *confirmed(1, 2, 3),
        event(Deed.DELIVER, 1, session="x", epoch=2, at_s=10.0),
        event(Deed.DELIVER, 2, session="y", epoch=1, at_s=20.0),
        event(Deed.DELIVER, 3, session="y", epoch=1, at_s=25.0),
    ],
    "came again and does not say redelivered": [
        *confirmed(1),
        event(Deed.DELIVER, 1, session="x", epoch=1),
        event(Deed.DELIVER, 1, session="y", epoch=2),
    ],
    "was never published": look(1),
    "has another content than was published": [
        event(Deed.PUBLISH, 1, content=7),
        event(Deed.DELIVER, 1, content=8),
    ],
    "is twice in its queue": [*confirmed(1), *look(1, 1)],
    "came from epoch 1 after one of epoch 2": [*confirmed(1, epoch=2), *confirmed(2, epoch=1)],
    "offset 1 of s was": [*LEAST, *stream(1, 2), *stream(1, 3)],
    "offset 0 of s is not there": [
        *LEAST,
        *stream(2, first=1),
        event(Deed.READ, place="s"),
    ],
    "s', 'p', 3) was confirmed and is lost": [
        *LEAST,
        event(Deed.CONFIRM, 3, "s"),
        *stream(1, 2),
        event(Deed.READ, place="s"),
    ],
    "a', 'p', 1) was confirmed and is lost": [
        *transaction(acks=False),
        *COMMITTED,
        *queues(False, False, False),
    ],
    "c', 'p', 9) came back although": [*transaction(), *COMMITTED, *queues(True, True, True)],
    "transaction t happened in part": [
        *transaction(),
        ended(Deed.COMMIT),
        *queues(True, False, False),
    ],
    "transaction t happened and was not committed": [
        *transaction(acks=False),
        ended(Deed.ROLLBACK),
        *queues(True, True, False),
    ],
}


@pytest.mark.parametrize("name", KEPT)
def test_a_history_that_keeps_the_laws(name: str) -> None:
    assert violations(KEPT[name]) == []


@pytest.mark.parametrize("law", BROKEN)
def test_a_history_that_breaks_a_law(law: str) -> None:
    found = violations(BROKEN[law])
    assert any(law in text for text in found), found


def test_a_transaction_over_a_queue_and_a_stream_that_happened_in_part() -> None:
    parts = [event(Deed.PUBLISH, 1, place, transaction="t") for place in ("q", "s")]
    read = event(Deed.READ, place="s")
    asked = [*parts, ended(Deed.COMMIT)]
    assert violations([*asked, *look(1), *stream(1), read]) == []
    assert violations([*asked, *look(1), read]) == ["transaction t happened in part"]


def test_late_messages_are_as_many_as_others_held() -> None:
    numbers = range(1, HELD_MAX + 3)
    late = [
        *confirmed(*numbers),
        event(Deed.DELIVER, numbers[-1], session="x"),
        event(Deed.DELIVER, numbers[-2], session="y"),
        *(event(Deed.DELIVER, n, session="y", redelivered=True) for n in numbers[:HELD_MAX]),
    ]
    assert violations(late) == []
    one_more = event(Deed.DELIVER, 999, session="y", redelivered=True)
    published = [event(Deed.PUBLISH, 999), event(Deed.DELIVER, 1000, session="y")]
    found = violations([*late, event(Deed.PUBLISH, 1000), *published, one_more])
    assert found == ["('q', 'p', 999) came after number 1000, and no consumer had held it"]


def test_what_an_operator_gave_up_is_under_no_law() -> None:
    before = [*confirmed(1, 2), event(Deed.DECLARE_OK), *LEAST, *stream(1, 2)]
    after = [*look(1), event(Deed.MISSING), *stream(2, 3), event(Deed.READ, place="s")]
    accepted = [*before, Event(Deed.ACCEPT_LOSS), *after]
    assert violations(accepted) == []
    assert violations([*accepted, *confirmed(3), *look()]) == [
        "('q', 'p', 3) was confirmed and is lost"
    ]
