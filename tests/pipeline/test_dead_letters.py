# SPDX-License-Identifier: Apache-2.0
"""Dead letters are browsed in their queue, and rules move each message to one queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.pipeline.pipelines import pipeline
from headrace.client import Message, blocking
from headrace.pipeline.config.errors import ConfigError, PipelineError
from headrace.pipeline.ready.dead_letters import browse, group_by_death, load_rules, settle
from headrace.pipeline.ready.death import DeadLetterRule

if TYPE_CHECKING:
    from headrace.client.blocking import Channel

RULES = """
[[rules]]
name = "late"
reason = "expired"
action = "route-back"
keep_deaths = false

[[rules]]
name = "often"
reason = ["rejected", "delivery_limit"]
headers = { tenant = "a*" }
action = "park"
to = "PARKED"

[[rules]]
name = "old"
older_than = "100 days"
action = "drop"
"""


@dataclass
class DeadLetterQueue:
    """A queue and its dead-letter queue, which has 4 messages."""

    channel: Channel
    queue: str
    dead: str
    parked: str

    def depth(self, queue: str) -> int:
        return self.channel.declare_queue(queue, passive=True).message_count


@pytest.fixture
def dead_queue(connection: blocking.Connection, name: str) -> Iterator[DeadLetterQueue]:
    queue, dead, parked = f"{name}.work", f"{name}.dead", f"{name}.parked"
    with connection.channel() as channel:
        for other in (dead, parked):
            channel.declare_queue(other)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        channel.declare_queue(queue, arguments=to_dead)
        for tenant in ("ab", "ac", "b"):
            channel.publish(Message(tenant.encode(), headers={"tenant": tenant}), queue)
        for _ in range(3):
            delivery = channel.get(queue)
            assert delivery is not None
            delivery.reject()
        short = f"{name}.short"
        channel.declare_queue(short, arguments={**to_dead, "x-message-ttl": 0})
        channel.publish(Message(b"late", message_id="m", headers={"tenant": "ab"}), short)
        while channel.declare_queue(dead, passive=True).message_count < 4:
            pass
        channel.delete_queue(short)
        channel.declare_queue(short)  # Where the late one goes back to.
        yield DeadLetterQueue(channel, queue, dead, parked)
        for other in (queue, dead, parked, short):
            channel.delete_queue(other)


def test_looking_changes_nothing(dead_queue: DeadLetterQueue, uri: str) -> None:
    """Browsing leaves the messages of the queue in place."""
    groups = group_by_death(browse(uri, dead_queue.dead, 100), ("reason", "queue"))
    assert [(group.key, group.messages, group.deaths_max) for group in groups] == [
        (("rejected", dead_queue.queue), 3, 1),
        (("expired", dead_queue.queue.replace(".work", ".short")), 1, 1),
    ]
    assert dead_queue.depth(dead_queue.dead) == 4
    first = dead_queue.channel.get(dead_queue.dead)
    assert first is not None
    assert (first.body, first.redelivered) == (b"ab", False)
    first.nack(requeue=True)


def test_rules_move_each_message_to_one_place(
    dead_queue: DeadLetterQueue, uri: str, tmp_path: Path
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES.replace("PARKED", dead_queue.parked))
    outcome = settle(uri, dead_queue.dead, load_rules(file), 100)
    assert (outcome.by_rule, outcome.unmatched) == ({"late": 1, "often": 2}, 1)
    assert (dead_queue.depth(dead_queue.dead), dead_queue.depth(dead_queue.parked)) == (1, 2)
    short = dead_queue.queue.replace(".work", ".short")
    back = dead_queue.channel.get(short, no_ack=True)
    assert back is not None
    assert (back.body, back.message_id, back.headers) == (b"late", "m", {"tenant": "ab"})
    parked = dead_queue.channel.get(dead_queue.parked, no_ack=True)
    assert parked is not None
    assert parked.headers["tenant"] == "ab"
    assert parked.headers["x-death"][0]["reason"] == "rejected"


def test_a_target_that_is_missing_moves_nothing(dead_queue: DeadLetterQueue, uri: str) -> None:
    rule = DeadLetterRule(name="park", action="park", to="nobody")
    with pytest.raises(PipelineError, match="messages cannot go to 'nobody'"):
        settle(uri, dead_queue.dead, [rule], 100)
    assert dead_queue.depth(dead_queue.dead) == 4


def test_unrouted_dead_letters_return(dead_queue: DeadLetterQueue, uri: str) -> None:
    """Dead letters that an exchange cannot route return to the dead-letter queue."""
    exchange = f"{dead_queue.dead}.exchange"
    dead_queue.channel.declare_exchange(exchange, "direct")
    dead_queue.channel.bind_queue(dead_queue.queue, exchange, "k")
    dead_queue.channel.publish(Message(b"x"), "k", exchange)
    delivery = dead_queue.channel.get(dead_queue.queue)
    assert delivery is not None
    delivery.reject()
    dead_queue.channel.unbind_queue(dead_queue.queue, exchange, "k")
    rule = DeadLetterRule(name="back", action="route-back", by="exchange", exchange=exchange)
    with pytest.raises(PipelineError, match=r"NO_ROUTE.*the message is in '.*dead' again"):
        settle(uri, dead_queue.dead, [rule], 100)
    assert dead_queue.depth(dead_queue.dead) == 5
    dead_queue.channel.delete_exchange(exchange)


def test_the_commands(dead_queue: DeadLetterQueue, uri: str) -> None:
    def call(*words: str) -> str:
        result = CliRunner().invoke(
            pipeline, ["dead-letters", *words, "--url", uri, dead_queue.dead]
        )
        assert result.exit_code == 0, result.output
        return result.output

    lines = [json.loads(line) for line in call("list", "--json", "--by", "reason").splitlines()]
    assert [(group["reason"], group["messages"]) for group in lines] == [
        ("rejected", 3),
        ("expired", 1),
    ]
    assert "rejected" in call("list")
    park = ("apply", "--action", "park", "--to", dead_queue.parked, "--reason", "rejected")
    assert call(*park, "--dry-run").splitlines() == ["park: 3", "left where it would be: 1"]
    assert dead_queue.depth(dead_queue.parked) == 0
    assert call(*park, "--yes").splitlines() == ["park: 3", "left where it is: 1"]
    assert dead_queue.depth(dead_queue.parked) == 3
    call("apply", "--action", "drop", "--yes")
    assert dead_queue.depth(dead_queue.dead) == 0


def test_what_is_wrong_in_a_file_of_rules_has_its_line(tmp_path: Path) -> None:
    """Mistakes in a file of rules are reported with their lines."""
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nname = "a"\naction = "park"\n[[rules]]\nname = "b"\nactoin = 1\n')
    with pytest.raises(ConfigError) as caught:
        load_rules(file)
    problems = [(problem.line, problem.key) for problem in caught.value.problems]
    assert problems == [(1, "rules[1]"), (4, "rules[2].action"), (6, "rules[2].actoin")]


def test_a_queue_that_is_missing_is_told(uri: str) -> None:
    """A missing queue is an error that names the queue."""
    with pytest.raises(PipelineError, match="there is no queue 'nowhere'"):
        list(browse(uri, "nowhere", 1))
