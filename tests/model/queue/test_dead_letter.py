# SPDX-License-Identifier: Apache-2.0
"""Dead letters: their headers, their ways, and the end of circles."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.gateway.conversion.headers import BasicContents
from headrace.model.contents import Content
from headrace.model.counters import Counters
from headrace.model.dead_letter_headers import add_death
from headrace.model.message import Message, new_message
from headrace.model.policy.policy import Policies
from headrace.model.policy.rules import Rules
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.queue.queue import Queue
from headrace.model.vhost.dead_letter_cycles import UNREJECTED_MAX, is_cycle
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.v0_x.frames import make_frame
from headrace.spec.tables import V0_9_1
from headrace.wire.table import TABLE_ENTRIES_MAX
from support.stored_message import stored_message

NOW_MS = 1_000_000_500
DEAD_LETTERS_MAX = 64  # That queues send in one go.


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost(
        "/",
        store=Store(),
        counters=Counters(now_ms=NOW_MS),
        contents=BasicContents(),  # type: ignore[arg-type]
    )


def message(exchange: str, key: str, body: bytes = b"body", **properties: Any) -> Message:
    return stored_message(body, key, exchange, **properties)


def enqueue(queue: Queue, *args: Any, **properties: Any) -> int:
    made = message(*args, **properties)
    made.seq = queue.counters.next_seq
    queue.counters.next_seq += 1
    return queue.enqueue(made)


def first(queue: Queue) -> tuple[str, str, BasicProperties, bytes]:
    """Take the first message apart."""
    taken = queue.dequeue()
    assert taken is not None
    data = taken.data
    assert data is not None
    size = 1 + data[0]
    exchange, key = data[1:size].decode(), data[size + 1 : taken.address_len].decode()
    at = taken.address_len + 2
    end = at + 7 + int.from_bytes(data[at + 3 : at + 7], "big")
    _, body_size, properties = decode_content_header(V0_9_1, data[at + 7 : end])
    body = data[end + 8 : -1]
    assert len(body) == body_size == taken.body_size
    assert isinstance(properties, BasicProperties)
    return exchange, key, properties, body


def declare(vhost: VirtualHost, name: str, **arguments: Any) -> Queue:
    spelt = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return vhost.declare_queue(name, arguments=spelt)


def reject_first(queue: Queue) -> None:
    consumer = Consumer(queue, "tag", False)
    taken = queue.get(consumer)
    assert taken is not None
    queue.discard(taken)


def test_a_death_is_told_in_full(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    enqueue(
        queue,
        "orders",
        "new",
        content_type="text/plain",
        expiration="60000",
        delivery_mode=2,
        priority=3,
        headers={"mine": 1, "CC": ["other"], "BCC": ["hidden"]},
    )
    reject_first(queue)
    exchange, key, properties, body = first(dead)
    assert (exchange, key, body) == ("", "dead", b"body")
    assert properties.expiration is None
    assert (properties.content_type, properties.delivery_mode, properties.priority) == (
        "text/plain",
        2,
        3,
    )
    assert properties.headers == {
        "mine": 1,
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "orders",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "q",
        "x-last-death-exchange": "orders",
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": "q",
                "time": datetime.fromtimestamp(NOW_MS // 1000, UTC),
                "exchange": "orders",
                "routing-keys": ["new", "other"],
                "original-expiration": "60000",
            }
        ],
    }


def test_without_a_key_the_original_keys_count(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="amq.direct")
    for name, key in (("a", "new"), ("b", "copy")):
        declare(vhost, name)
        vhost.bind("amq.direct", ("queue", name), key)
    enqueue(queue, "", "new", headers={"CC": ["copy", 5]})
    reject_first(queue)
    for name in ("a", "b"):
        exchange, key, properties, _ = first(vhost.queues[name])
        assert (exchange, key) == ("amq.direct", "new")
        assert properties.headers is not None
        assert properties.headers["CC"] == ["copy", 5]


def test_an_expired_message_says_so_and_lives_by_its_new_queue(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead", message_ttl=50)
    queue.message_ttl_ms = 10
    enqueue(queue, "", "q")
    vhost.counters.now_ms = NOW_MS + 10
    assert vhost.scheduler.run(NOW_MS + 10) == NOW_MS + 60
    assert (queue.ready_count, dead.ready_count) == (0, 1)
    _, _, properties, _ = first(dead)
    assert properties.headers is not None
    assert properties.headers["x-death"][0]["reason"] == "expired"


def test_the_same_death_again_counts(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="q")
    enqueue(queue, "", "q")
    for _ in range(3):
        reject_first(queue)
    _, _, properties, _ = first(queue)
    assert properties.headers is not None
    (death,) = properties.headers["x-death"]
    assert (death["count"], death["reason"]) == (3, "rejected")


def test_a_circle_without_a_rejection_ends(
    vhost: VirtualHost, caplog: pytest.LogCaptureFixture
) -> None:
    one = declare(vhost, "one", dead_letter_exchange="", dead_letter_routing_key="two")
    two = declare(vhost, "two", dead_letter_exchange="", dead_letter_routing_key="one")
    one.message_ttl_ms = two.message_ttl_ms = 10
    for n in (1, 2):
        enqueue(one, "", "one")
        for _ in range(4):
            vhost.counters.now_ms += 10
            vhost.scheduler.run(vhost.counters.now_ms)
        assert (one.ready_count, two.ready_count) == (0, 0), n
    assert caplog.text.count("is dropped") == 1


def test_a_rejection_keeps_a_circle_going(vhost: VirtualHost) -> None:
    work = declare(vhost, "work", dead_letter_exchange="", dead_letter_routing_key="wait")
    wait = declare(
        vhost, "wait", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="work"
    )
    enqueue(work, "", "work")
    for _ in range(3):
        reject_first(work)
        assert wait.ready_count == 1
        vhost.counters.now_ms += 10
        vhost.scheduler.run(vhost.counters.now_ms)
        assert work.ready_count == 1
    _, _, properties, _ = first(work)
    assert properties.headers is not None
    deaths = [(d["queue"], d["reason"], d["count"]) for d in properties.headers["x-death"]]
    assert deaths == [("wait", "expired", 3), ("work", "rejected", 3)]
    assert properties.headers["x-first-death-queue"] == "work"
    assert properties.headers["x-last-death-queue"] == "wait"


@pytest.mark.parametrize(("chain", "arrives"), [(UNREJECTED_MAX - 1, 1), (UNREJECTED_MAX, 0)])
def test_a_long_chain_of_full_queues_has_an_end(
    vhost: VirtualHost, chain: int, arrives: int
) -> None:
    for n in range(chain):
        key = f"q{n + 1}"
        declare(vhost, f"q{n}", max_length=0, dead_letter_exchange="", dead_letter_routing_key=key)
    last = declare(vhost, f"q{chain}")
    enqueue(vhost.queues["q0"], "", "q0")
    assert last.ready_count == arrives


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_what_a_full_queue_does(vhost: VirtualHost, overflow: str) -> None:
    queue = declare(
        vhost,
        "q",
        max_length=1,
        overflow=overflow,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    dead = declare(vhost, "dead")
    refused = [enqueue(queue, "", "q", body) for body in (b"a", b"b")]
    assert refused == ([0, 0] if overflow == "drop-head" else [0, 1])
    if overflow == "reject-publish":
        assert dead.ready_count == 0
    else:
        _, _, properties, body = first(dead)
        assert body == (b"a" if overflow == "drop-head" else b"b")
        assert properties.headers is not None
        assert properties.headers["x-death"][0]["reason"] == "maxlen"
    assert first(queue)[3] == (b"b" if overflow == "drop-head" else b"a")


def test_letters_to_nowhere_are_dropped(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="missing")
    enqueue(queue, "", "q")
    reject_first(queue)
    assert queue.ready_count == queue.unacked_count == 0


def test_a_large_body_is_shared_not_copied(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    header = encode_content_header(V0_9_1, 60, 6, BasicProperties())
    large = new_message(b"\0\x01q\0\0" + make_frame(2, 0, header), 3, 6)
    large.parts = (b"abc", b"def")
    large.seq = 7
    queue.enqueue(large)
    parts = large.parts
    reject_first(queue)
    taken = dead.dequeue()
    assert taken is not None
    assert taken.parts is parts


COUNTED = {"queue": "q", "reason": "expired"}


@pytest.mark.parametrize(
    "deaths",
    [
        *(None, "nonsense", [], [1], [{"queue": 5}], [{}]),
        *([{**COUNTED, "count": count}] for count in ("many", -5, (1 << 63) - 1)),
    ],
)
def test_headers_that_a_client_made_up_do_no_harm(deaths: Any) -> None:
    content = Content("", "k", {"x-death": deaths}, None, False)
    headers = add_death(content, "q", "expired", NOW_MS, rerouted=False)
    assert headers["x-death"][0]["count"] == 1
    assert is_cycle("q", headers)
    assert not is_cycle("p", headers)


@pytest.mark.parametrize("deaths", [None, "nonsense", [], [1], [{"queue": 5}], [{}]])
def test_headers_that_a_client_made_up_are_no_cycle(deaths: Any) -> None:
    assert not is_cycle("q", {"x-death": deaths})


class Sharing(Consumer):
    """Consumers that share one room, as those of one channel do."""

    room = 1

    def has_room(self) -> bool:
        return Sharing.room > 0

    def deliver(self, message: Message) -> None:
        Sharing.room -= 1


def test_dead_letters_do_not_take_room_twice(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    dead.add_consumer(Sharing(dead, "dead", False))
    queue.message_ttl_ms = 10
    enqueue(queue, "", "q")
    queue.message_ttl_ms = -1
    enqueue(queue, "", "q")
    vhost.counters.now_ms += 10  # The first is due, and not expired yet.
    Sharing.room = 1
    queue.add_consumer(Sharing(queue, "q", False))
    queue.drain()
    assert Sharing.room == 0
    assert (queue.ready_count, dead.unacked_count) == (1, 1)


def test_headers_with_no_room_for_a_death_end_quietly(
    vhost: VirtualHost, caplog: pytest.LogCaptureFixture
) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    full: dict[str, Any] = dict.fromkeys(map(str, range(TABLE_ENTRIES_MAX - 3)))
    enqueue(queue, "", "q", headers=full, expiration="1")
    enqueue(queue, "", "q", expiration="1")
    for taken in (queue.get(Consumer(queue, "tag", False)) for _ in range(2)):
        assert taken is not None
        queue.discard(taken)
    assert dead.ready_count == 1
    assert caplog.text.count("is dropped") == 1


def test_a_great_dying_takes_its_turns(vhost: VirtualHost) -> None:
    count = 2 * DEAD_LETTERS_MAX + 10
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    queue.message_ttl_ms = 10
    for _ in range(count):
        enqueue(queue, "", "q")
    vhost.counters.now_ms = NOW_MS + 10
    turns = 0
    while due := vhost.scheduler.run(vhost.counters.now_ms):
        turns += 1
        assert due == vhost.counters.now_ms + 1  # As soon as everybody else had a turn.
        assert dead.ready_count == turns * DEAD_LETTERS_MAX
        vhost.counters.now_ms = due
    assert (turns, dead.ready_count, queue.ready_count) == (2, count, 0)


def test_what_is_due_and_still_there_is_not_delivered(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    queue.message_ttl_ms = 10
    for _ in range(DEAD_LETTERS_MAX + 5):
        enqueue(queue, "", "q")
    vhost.counters.now_ms = NOW_MS + 10
    vhost.scheduler.run(NOW_MS + 10)
    assert queue.ready_count == 5
    assert queue.get(Consumer(queue, "tag", False)) is None
    assert queue.ready_count == 0
    run_out(vhost)
    assert dead.ready_count == DEAD_LETTERS_MAX + 5


def run_out(vhost: VirtualHost) -> int:
    """Let the scheduler run until nothing is due; return how often it had to."""
    turns = 0
    while due := vhost.scheduler.next_ms:
        turns += 1
        vhost.counters.now_ms = due
        vhost.scheduler.run(due)
    return turns


@pytest.mark.parametrize("how", ["rejected", "maxlen"])
def test_what_dies_at_once_becomes_letters_little_by_little_and_in_order(
    vhost: VirtualHost, how: str
) -> None:
    """A consumer rejects all that it holds; a policy shortens a long queue."""
    count = 3 * DEAD_LETTERS_MAX
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    for n in range(count):
        enqueue(queue, "", "q", message_id=str(n))
    if how == "rejected":
        held = [queue.get(Consumer(queue, "tag", False)) for _ in range(count)]
        for message in held:
            assert message is not None
            queue.discard(message)
    else:
        short = {"pattern": "^q$", "definition": {"max-length": 0}}
        vhost.set_rules(Rules(Policies({"p": short})))
    assert (queue.ready_count, queue.unacked_count) == (0, 0)
    assert dead.ready_count == DEAD_LETTERS_MAX
    assert queue.pending_count == count - DEAD_LETTERS_MAX
    assert run_out(vhost) == 2
    assert (dead.ready_count, queue.pending_count) == (count, 0)
    letters = [first(dead)[2] for _ in range(count)]
    assert [letter.headers["x-death"][0]["reason"] for letter in letters] == [how] * count
    assert [letter.message_id for letter in letters] == [str(n) for n in range(count)]


def test_the_dying_go_with_their_queue(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    before = vhost.counters.memory_used
    for _ in range(DEAD_LETTERS_MAX + 3):
        enqueue(queue, "", "q")
    for _ in range(DEAD_LETTERS_MAX + 3):
        message = queue.get(Consumer(queue, "tag", False))
        assert message is not None
        queue.discard(message)
    vhost.delete_queue("q")
    run_out(vhost)
    assert dead.ready_count == DEAD_LETTERS_MAX
    vhost.delete_queue("dead")
    assert vhost.counters.memory_used == before
