# SPDX-License-Identifier: Apache-2.0
"""Whose a queue is, and what of that is there after a restart."""

from typing import Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import InvalidArgument, NotFound, PreconditionFailed, ResourceLocked
from headrace.model.message import KIND_FILE
from headrace.model.policy.rules import Limits, Rules
from headrace.model.policy.unknown_arguments import DEAD_LETTERS, dead_letter_queue
from headrace.model.ports import Store
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.vhost.definitions import NoDefinitions, QueueRecord, SavedDefinitions
from headrace.model.vhost.queue_registry import DELETIONS_PER_STEP
from headrace.model.vhost.virtual_host import VirtualHost
from support.brokers.queue_kind_host import Host, Taker

EXCLUSIVITY = "qpid.exclusivity_policy"
LIFETIME = "qpid.lifetime_policy"


class User:
    def __init__(self, name: str) -> None:
        self.name = name


class Client:
    """A connection, or a session of one."""

    def __init__(self, user: str, connection: object = None) -> None:
        self.user = User(user)
        self.connection = connection


class Kept(NoDefinitions):
    """Definitions that a second host may load."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: list[QueueRecord] = []

    def load(self) -> SavedDefinitions:
        return SavedDefinitions([], self.queues, [])

    def save_queue(self, record: QueueRecord) -> int:
        number = super().save_queue(record)
        self.queues.append(record._replace(id=number))
        return number


def new_host(kept: Kept) -> VirtualHost:
    vhost = VirtualHost("/", store=Store(), counters=Counters(), definitions=kept)
    vhost.load()
    return vhost


def test_a_queue_of_a_user_is_that_users_over_a_restart() -> None:
    kept = Kept()
    vhost = new_host(kept)
    arguments = {EXCLUSIVITY: "PRINCIPAL"}
    for host in (vhost, new_host(kept)):
        for client in (Client("me"), Client("me")):
            host.declare_queue("q", durable=True, arguments=arguments, owner=client)
            assert host.find_queue("q", client)
        with pytest.raises(ResourceLocked):
            host.find_queue("q", Client("you"))
        with pytest.raises(ResourceLocked):
            host.declare_queue("q", durable=True, arguments=arguments, owner=Client("you"))


def test_clients_cannot_name_the_owner() -> None:
    vhost = new_host(Kept())
    arguments = {EXCLUSIVITY: "PRINCIPAL", "x-headrace-principal": "you"}
    vhost.declare_queue("q", arguments=arguments, owner=Client("me"))
    with pytest.raises(ResourceLocked):
        vhost.find_queue("q", Client("you"))


def test_what_goes_with_a_connection_is_not_kept() -> None:
    kept = Kept()
    vhost = new_host(kept)
    connection = Client("me")
    arguments = {LIFETIME: "DELETE_ON_CONNECTION_CLOSE"}
    session = Client("me", connection)
    for _ in range(2):
        vhost.declare_queue("q", durable=True, arguments=arguments, owner=session)
    assert not kept.queues
    vhost.on_connection_closed(session)
    assert "q" in vhost.queues
    vhost.on_connection_closed(connection)
    assert "q" not in vhost.queues


def test_what_is_one_consumers_or_goes_when_empty_is_so_after_a_restart() -> None:
    kept = Kept()
    arguments = {EXCLUSIVITY: "LINK", LIFETIME: "IN_USE"}
    new_host(kept).declare_queue("q", durable=True, arguments=arguments)
    vhost = new_host(kept)
    assert vhost.queues["q"].exclusive_only
    assert vhost.queues["q"].auto_delete
    vhost.on_queue_unused(vhost.queues["q"])
    assert "q" not in vhost.queues


def test_a_queue_goes_once_it_is_empty_though_it_is_in_use() -> None:
    host = Host()
    arguments = {"qpid.lifetime-policy": "delete-if-empty"}
    queue = host.vhost.declare_queue("q", auto_delete=True, arguments=arguments)
    taker = Taker(queue, room=1).start()
    host.pass_time(1000)
    assert not queue.deleted  # It was never anything else.
    host.enqueue(queue, "a")
    host.enqueue(queue, "b")
    for body in "ab":  # What is held counts.
        host.pass_time(1000)
        assert not queue.deleted
        taker.settle(body)
    host.pass_time(1000)
    assert queue.deleted
    host.vhost.declare_queue("q", arguments=arguments)
    host.vhost.delete_queue("q")
    host.pass_time(1000)


@pytest.mark.parametrize("policy", ["delete-if-empty", "delete-if-unused-and-empty"])
def test_a_queue_with_a_message_that_waits_for_its_time_is_not_empty(policy: str) -> None:
    host = Host()
    queue = host.queue(**{"qpid.lifetime-policy": policy, "holdOnPublishEnabled": True})
    host.enqueue(queue, "a", **{"x-qpid-not-valid-before": host.counters.now_ms + 3000})
    if queue.auto_delete:
        host.vhost.on_queue_unused(queue)
    host.pass_time(2000)
    assert not queue.deleted
    host.pass_time(2000)
    assert queue.message_count() == 1
    queue.purge()
    host.pass_time(1000)
    assert queue.deleted


@pytest.mark.parametrize("policy", ["delete-if-empty", "delete-if-unused-and-empty"])
def test_a_queue_with_an_unacked_file_is_not_empty(policy: str) -> None:
    host = Host()
    queue = host.queue(**{"qpid.lifetime-policy": policy})
    lane = get_lane(queue, KIND_FILE)
    message = host.message("a")
    message.flags |= KIND_FILE
    lane.enqueue(message)
    host.pass_time(1000)
    taker = Taker(lane, room=1).start()
    assert taker.got == ["a"]
    lane.remove_consumer(taker)  # Its channel still has the message.
    if queue.auto_delete:
        host.vhost.on_queue_unused(queue)
    host.pass_time(1000)
    assert not queue.deleted
    lane.settle(message)
    host.pass_time(1000)
    assert queue.deleted


def test_a_session_owns_a_queue_and_a_channel_does_not() -> None:
    vhost = Host().vhost
    arguments = {EXCLUSIVITY: "SESSION"}
    session = Client("me")
    vhost.declare_queue("q", arguments=arguments, owner=session)
    vhost.declare_queue("q", arguments=arguments, owner=session)
    with pytest.raises(ResourceLocked):
        vhost.find_queue("q", Client("me"))
    vhost.on_connection_closed(session)
    assert vhost.find_queue("q", Client("me"))
    with pytest.raises(InvalidArgument, match="a channel owns no queues"):
        vhost.declare_queue("p", arguments=arguments, owner=Client("me"), session=object())


GOES = [
    {LIFETIME: "DELETE_ON_CONNECTION_CLOSE"},
    {LIFETIME: "DELETE_ON_SESSION_END"},
    {LIFETIME: "DELETE_ON_NO_LINKS"},
    {"qpid.lifetime-policy": "delete-if-empty"},
    {EXCLUSIVITY: "CONNECTION"},
]


@pytest.mark.parametrize("arguments", GOES)
def test_a_quorum_queue_stays_and_is_everybodys_in_qpids_words_too(
    arguments: dict[str, str],
) -> None:
    vhost = Host().vhost
    quorum_arguments = {"x-queue-type": "quorum", **arguments}
    with pytest.raises(PreconditionFailed, match="invalid property"):
        vhost.declare_queue("q", durable=True, arguments=quorum_arguments, owner=Client("me"))
    assert "q" not in vhost.queues
    vhost.rules = vhost.rules._replace(default_queue_type="quorum")
    for _ in range(2):  # What is declared so gets no such type, and is the same again.
        queue = vhost.declare_queue("q", durable=True, arguments=arguments, owner=Client("me"))
        assert "x-queue-type" not in queue.arguments
        vhost.delete_queue("q", owner=queue.exclusive_owner)
    assert vhost.declare_queue("p", durable=True).arguments["x-queue-type"] == "quorum"


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({EXCLUSIVITY: "NONE"}, {"exclusive": True}),
        ({EXCLUSIVITY: "PRINCIPAL"}, {"exclusive": True}),
        ({LIFETIME: "PERMANENT"}, {"auto_delete": True}),
        ({LIFETIME: "PERMANENT", "qpid.lifetime-policy": "delete-if-unused"}, {}),
    ],
)
def test_contradictions_are_refused(arguments: dict[str, str], flags: dict[str, bool]) -> None:
    vhost = Host().vhost
    with pytest.raises(PreconditionFailed, match="contradicts"):
        vhost.declare_queue("q", arguments=arguments, **flags)  # type: ignore[arg-type]  # Flags.
    assert "q" not in vhost.queues


DYING = [{"exclusive": True}, {"arguments": {LIFETIME: "DELETE_ON_CONNECTION_CLOSE"}}]


@pytest.mark.parametrize("properties", DYING)
@pytest.mark.rule("0-9-1/s058")
def test_many_queues_of_a_connection_are_deleted_in_steps(properties: dict[str, Any]) -> None:
    host = Host()
    vhost = host.vhost
    mine, other = Client("me"), Client("you")
    count = 2 * DELETIONS_PER_STEP + 10
    queues = [vhost.declare_queue(f"q{n}", owner=mine, **properties) for n in range(count)]
    vhost.on_connection_closed(mine)
    assert sum(not queue.deleted for queue in queues) == count - DELETIONS_PER_STEP
    # A queue that waits for its deletion does not exist for a client that names it.
    assert not vhost.queues
    with pytest.raises(NotFound):
        vhost.find_queue(f"q{count - 1}", mine)
    again = vhost.declare_queue(f"q{count - 2}", exclusive=True, owner=other)
    assert again is not queues[-2]
    assert queues[-2].deleted
    host.pass_time(1)
    assert sum(not queue.deleted for queue in queues) == count - 2 * DELETIONS_PER_STEP - 1
    host.pass_time(1)
    assert list(vhost.queues.values()) == [again]
    assert all(queue.deleted for queue in queues)
    assert not again.deleted
    host.pass_time(1000)
    assert len(host.scheduler) == 0


@pytest.mark.parametrize("properties", DYING)
def test_a_queue_that_waits_for_its_deletion_is_gone_for_all(properties: dict[str, Any]) -> None:
    host = Host()
    vhost = host.vhost
    mine = Client("me")
    count = DELETIONS_PER_STEP + 10
    vhost.set_rules(Rules(limits=Limits(queues=count)))
    letters = dead_letter_queue("orders")
    names = [*[f"q{n}" for n in range(count - 1)], letters]
    queues = [vhost.declare_queue(name, owner=mine, user="me", **properties) for name in names]
    vhost.on_connection_closed(mine)
    assert not queues[-1].deleted
    assert not vhost.route("", names[-1], dict).queues
    assert vhost.queue_count() == 0
    assert vhost.declared_queue_counts == {}
    vhost.declare_queue("more")
    assert vhost.delete_queue(names[-2], owner=Client("you")) == 0
    vhost.declare_queue("orders", arguments={DEAD_LETTERS: 1})
    assert vhost.find_queue(letters) not in queues
    vhost.delete_ownerless()
    assert all(queue.deleted for queue in queues)
    assert sorted(vhost.queues) == sorted(["more", "orders", letters])
    assert list(vhost.queues_in_order) == [vhost.queues[n] for n in ("more", "orders", letters)]


def test_many_queues_of_a_closed_channel_are_deleted_although_their_owner_is_gone() -> None:
    host = Host()
    vhost = host.vhost
    mine, channel = Client("me"), object()
    arguments = {EXCLUSIVITY: "CONNECTION", LIFETIME: "DELETE_ON_SESSION_END"}
    for n in range(DELETIONS_PER_STEP + 10):
        vhost.declare_queue(f"q{n}", owner=mine, session=channel, arguments=arguments)
    vhost.on_session_end(channel)
    vhost.on_connection_closed(mine)
    host.pass_time(1)
    assert not vhost.queues


def test_many_durable_queues_are_deleted_at_once() -> None:
    vhost = Host().vhost
    mine = Client("me")
    queues = [
        vhost.declare_queue(
            f"q{n}", durable=True, exclusive=True, auto_delete=True, kept=True, owner=mine
        )
        for n in range(DELETIONS_PER_STEP + 10)
    ]
    vhost.on_connection_closed(mine)
    assert all(queue.deleted for queue in queues)


def test_many_queues_that_outlive_their_session_are_free_at_once() -> None:
    host = Host()
    vhost = host.vhost
    mine, other = Client("me"), Client("you")
    count = DELETIONS_PER_STEP + 10
    for n in range(count):
        vhost.declare_queue(f"q{n}", exclusive=True, kept=True, owner=mine)
    vhost.on_connection_closed(mine)
    assert all(queue.exclusive_owner is None for queue in vhost.queues.values())
    last = vhost.find_queue(f"q{count - 1}", other)
    vhost.lock_queue(last, other)
    host.pass_time(1)
    assert len(vhost.queues) == count
    assert last.exclusive_owner is other
    assert all(q.exclusive_owner is None for q in vhost.queues.values() if q is not last)
