# SPDX-License-Identifier: Apache-2.0
"""Dead letters are looked at where they are, and move as rules say, each to one place."""

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
from headrace.pipeline.ready.dead_letters import browse, group_by_death, rules_of, settle
from headrace.pipeline.ready.death import LetterRule

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
class Scene:
    """A queue with a dead-letter queue, in which 4 messages have died."""

    channel: Channel
    queue: str
    dead: str
    parked: str

    def depth(self, queue: str) -> int:
        return self.channel.declare_queue(queue, passive=True).message_count


@pytest.fixture
def scene(connection: blocking.Connection, name: str) -> Iterator[Scene]:
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
        yield Scene(channel, queue, dead, parked)
        for other in (queue, dead, parked, short):
            channel.delete_queue(other)


def test_looking_changes_nothing(scene: Scene, uri: str) -> None:
    groups = group_by_death(browse(uri, scene.dead, 100), ("reason", "queue"))
    assert [(one.key, one.messages, one.deaths_max) for one in groups] == [
        (("rejected", scene.queue), 3, 1),
        (("expired", scene.queue.replace(".work", ".short")), 1, 1),
    ]
    assert scene.depth(scene.dead) == 4
    first = scene.channel.get(scene.dead)
    assert first is not None
    assert (first.body, first.redelivered) == (b"ab", False)
    first.nack(requeue=True)


def test_rules_move_each_message_to_one_place(scene: Scene, uri: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES.replace("PARKED", scene.parked))
    outcome = settle(uri, scene.dead, rules_of(file), 100)
    assert (outcome.by_rule, outcome.left) == ({"late": 1, "often": 2}, 1)
    assert (scene.depth(scene.dead), scene.depth(scene.parked)) == (1, 2)
    short = scene.queue.replace(".work", ".short")
    back = scene.channel.get(short, no_ack=True)
    assert back is not None
    assert (back.body, back.message_id, back.headers) == (b"late", "m", {"tenant": "ab"})
    parked = scene.channel.get(scene.parked, no_ack=True)
    assert parked is not None
    assert parked.headers["tenant"] == "ab"
    assert parked.headers["x-death"][0]["reason"] == "rejected"


def test_a_target_that_is_missing_moves_nothing(scene: Scene, uri: str) -> None:
    rule = LetterRule(name="park", action="park", to="nobody")
    with pytest.raises(PipelineError, match="messages cannot go to 'nobody'"):
        settle(uri, scene.dead, [rule], 100)
    assert scene.depth(scene.dead) == 4


def test_unrouted_dead_letters_return(scene: Scene, uri: str) -> None:
    """An exchange that routes nowhere: the transaction took effect, and the messages are kept."""
    exchange = f"{scene.dead}.exchange"
    scene.channel.declare_exchange(exchange, "direct")
    scene.channel.bind_queue(scene.queue, exchange, "k")
    scene.channel.publish(Message(b"x"), "k", exchange)
    delivery = scene.channel.get(scene.queue)
    assert delivery is not None
    delivery.reject()
    scene.channel.unbind_queue(scene.queue, exchange, "k")
    rule = LetterRule(name="back", action="route-back", by="exchange", exchange=exchange)
    with pytest.raises(PipelineError, match=r"NO_ROUTE.*it is in '.*dead' again"):
        settle(uri, scene.dead, [rule], 100)
    assert scene.depth(scene.dead) == 5
    scene.channel.delete_exchange(exchange)


def test_the_commands(scene: Scene, uri: str) -> None:
    def call(*words: str) -> str:
        result = CliRunner().invoke(pipeline, ["dead-letters", *words, "--url", uri, scene.dead])
        assert result.exit_code == 0, result.output
        return result.output

    lines = [json.loads(line) for line in call("list", "--json", "--by", "reason").splitlines()]
    assert [(one["reason"], one["messages"]) for one in lines] == [("rejected", 3), ("expired", 1)]
    assert "rejected" in call("list")
    park = ("apply", "--action", "park", "--to", scene.parked, "--reason", "rejected")
    assert call(*park, "--dry-run").splitlines() == ["park: 3", "left where it would be: 1"]
    assert scene.depth(scene.parked) == 0
    assert call(*park, "--yes").splitlines() == ["park: 3", "left where it is: 1"]
    assert scene.depth(scene.parked) == 3
    call("apply", "--action", "drop", "--yes")
    assert scene.depth(scene.dead) == 0


def test_what_is_wrong_in_a_file_of_rules_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nname = "a"\naction = "park"\n[[rules]]\nname = "b"\nactoin = 1\n')
    with pytest.raises(ConfigError) as caught:
        rules_of(file)
    told = [(one.line, one.where) for one in caught.value.problems]
    assert told == [(1, "rules[1]"), (4, "rules[2].action"), (6, "rules[2].actoin")]


def test_a_queue_that_is_missing_is_told(uri: str) -> None:
    with pytest.raises(PipelineError, match="there is no queue 'nowhere'"):
        list(browse(uri, "nowhere", 1))
