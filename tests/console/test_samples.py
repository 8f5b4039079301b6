# SPDX-License-Identifier: Apache-2.0
"""Samples in columns: values of the past, bounded memory, and a broker that starts anew."""

from __future__ import annotations

import asyncio
import itertools
import random
from array import array
from typing import TYPE_CHECKING, Any, cast

import pytest

from headrace.client import blocking
from headrace.console.api.common.own_counts import longest_wait_ms
from headrace.console.broker.errors import BrokerGone
from headrace.console.state.deltas import (
    BASIC,
    MS,
    SAMPLE_S,
    Delta,
    Deltas,
    join_deltas,
    make_delta,
    run_steps,
)
from headrace.console.state.history import History
from headrace.console.state.samples import (
    ID_BITS,
    KINDS_OF_VHOSTS,
    ended_parts,
    parse_part,
    read_sample,
    rebase_part,
)
from headrace.console.state.slices import Slices
from headrace.console.state.table import Part, SampledObject, Table, Window
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

BEGAN_MS = 1_700_000_000_000
STEP_MS = SAMPLE_S * MS
COLUMNS = ("ready", "publish")
NO_BOUND = 1 << 40


def part(rows: Mapping[int, tuple[int, int]], new: tuple[int, ...] = (), gone: Any = ()) -> Part:
    """Return a part of a sample with the numbers of objects by id; new ones have a name."""
    columns = {
        name: array("q", [row[at] for row in rows.values()]) for at, name in enumerate(COLUMNS)
    }
    named = [(number, f"queue {number}") for number in new]
    return Part(array("q", rows), columns, ("name",), named, gone)


def table(bytes_max: int = NO_BOUND) -> Table:
    return Table(("name",), BASIC, bytes_max)


def sample(into: Table, at: int, one: Part) -> None:
    """Take the sample number ``at``."""
    now_ms = BEGAN_MS + at * STEP_MS
    into.add(one, now_ms)
    run_steps(into.complete(now_ms))


OTHER = 1 << ID_BITS  # The base of another broker's ids.


def names(objects: Table, slots: list[int]) -> list[str]:
    return [objects.text("name", slot) for slot in slots]


def test_an_object_that_another_broker_serves_replaces_the_former_one() -> None:
    objects = table()
    sample(objects, 0, part({1: (5, 0), 2: (7, 0)}, (1, 2)))
    row = part({1: (6, 0)}, (1,))
    sample(objects, 1, rebase_part(row, OTHER, "headrace@two"))
    assert names(objects, objects.slots_in_order()) == ["queue 1", "queue 2"]
    assert names(objects, objects.own_slots()) == ["queue 2"]
    slot = objects.find("queue 1")
    assert slot is not None
    assert (SampledObject(objects, slot).node, objects.number(slot, "ready")) == ("headrace@two", 6)
    sample(objects, 2, part({2: (8, 0)}, gone=[1]))  # The former owner reports its end later.
    assert objects.number(1, "ready") == 8
    assert objects.find("queue 1") == slot


def test_a_slot_of_another_broker_is_reused_by_the_own_one() -> None:
    objects = table()
    sample(objects, 0, rebase_part(part({1: (5, 0)}, (1,)), OTHER, "headrace@two"))
    sample(objects, 1, Part(array("q"), {}, (), (), [1 + OTHER]))
    sample(objects, 2, part({1: (4, 0)}, (1,)))
    assert names(objects, objects.own_slots()) == ["queue 1"]


def test_all_objects_of_a_broker_end_at_once() -> None:
    tables = {kind: table() for kind in KINDS_OF_VHOSTS}
    for objects in tables.values():
        sample(objects, 0, part({1: (5, 0)}, (1,)))
        sample(objects, 1, rebase_part(part({2: (5, 0)}, (2,)), OTHER, "headrace@two"))
    for kind, ended in ended_parts(tables, OTHER):
        sample(tables[kind], 2, ended)
    assert {tuple(objects.slots) for objects in tables.values()} == {(1,)}


def test_a_deleted_queue_has_no_oldest_message() -> None:
    objects = table()
    old = Part(array("q", [1]), {"oldest_ms": array("q", [BEGAN_MS])}, ("name",), [(1, "q")], ())
    sample(objects, 1, old)
    assert longest_wait_ms(objects) == STEP_MS
    sample(objects, 2, Part(array("q"), {}, (), (), [1]))
    assert longest_wait_ms(objects) is None


@pytest.mark.parametrize("seed", range(5))
def test_values_of_the_past_are_those_that_were_sampled(seed: int) -> None:
    draw = random.Random(seed)
    objects = table()
    known = {number: [0, 0] for number in range(1, 8)}
    sample(objects, 0, part(dict.fromkeys(known, (0, 0)), tuple(known)))
    past: dict[int, dict[int, tuple[int, int]]] = {0: dict.fromkeys(known, (0, 0))}
    for at in range(1, 300):
        for number in draw.sample(sorted(known), draw.randrange(8)):
            known[number][0] = draw.randrange(1 << draw.randrange(1, 40))
            known[number][1] += draw.randrange(1 << draw.randrange(1, 40))
        moved = {n: (row[0], row[1]) for n, row in known.items() if past[at - 1][n] != tuple(row)}
        sample(objects, at, part(moved))
        past[at] = {n: (row[0], row[1]) for n, row in known.items()}
    moments = [BEGAN_MS + at * STEP_MS for at in range(299, 299 - 120, -1)]
    for number in known:
        slot = objects.find(f"queue {number}")
        assert slot is not None
        for place, name in enumerate(COLUMNS):
            wanted = [past[at][number][place] for at in range(299, 299 - 120, -1)]
            assert objects.values_at(slot, (name,), moments) == wanted
        both = objects.values_at(slot, COLUMNS, moments[:1])
        assert both == [sum(past[299][number])]
        change = past[299][number][1] - past[298][number][1]
        assert SampledObject(objects, slot).rate("publish") == change / SAMPLE_S
    # Older ones are known for each minute of the hour.
    slot = objects.find("queue 1")
    assert slot is not None
    assert objects.values_at(slot, ("publish",), [BEGAN_MS]) == [0]


@pytest.mark.parametrize("seed", range(20))
def test_a_steady_rate_is_steady_at_every_poll(seed: int) -> None:
    """Requests sample between the samples of every five seconds, which come late at times."""
    draw = random.Random(seed)
    history = History(None)
    objects = table()
    rate = 5000
    regular = [at * STEP_MS + draw.randrange(40) for at in range(60)]
    polls = [draw.randrange(60 * STEP_MS) for _ in range(200)]

    def count(now_ms: int) -> int:
        return rate * now_ms // MS

    run_steps(objects.complete(BEGAN_MS - 1))
    for now_ms in sorted({*regular, *polls}):
        one = part({1: (0, count(now_ms))}, (1,) if 1 not in objects.slots else ())
        objects.add(one, BEGAN_MS + now_ms)
        run_steps(objects.complete(BEGAN_MS + now_ms))
        history.add({"queue": objects}, {}, BEGAN_MS + now_ms)
        _, series = asyncio.run(history.series("queue", ("queue 1",), ("publish",), "1m"))
        known = [one for one in series["publish"] if one is not None]
        if now_ms > 2 * STEP_MS:
            assert known[1:] == pytest.approx([rate] * len(known[1:]), rel=0.001), now_ms
        if now_ms > 12 * STEP_MS:
            details: dict[str, Any] = SampledObject(objects, 0).details(("publish",), Window(30, 5))
            assert details["avg_rate"] == pytest.approx(rate, rel=0.001)
            assert details["rate"] == pytest.approx(rate, rel=0.001)
            samples = [one["sample"] for one in details["samples"]]
            assert [a - b for a, b in itertools.pairwise(samples)] == pytest.approx(
                [rate * SAMPLE_S] * 6, rel=0.001
            )


def test_windows_have_averages_and_the_newest_sample_first() -> None:
    objects = table()
    sample(objects, 0, part({1: (0, 0)}, (1,)))
    for at in range(1, 13):
        sample(objects, at, part({1: (at, 10 * at)}))
    found: dict[str, Any] = SampledObject(objects, 0).details(("publish",), Window(30, 10))
    assert found["rate"] == 2.0
    assert [one["sample"] for one in found["samples"]] == [120, 100, 80, 60]
    assert found["avg"] == 90
    assert found["avg_rate"] == 2.0


def test_a_slot_is_used_again_without_the_past_of_its_first_object() -> None:
    objects = table()
    sample(objects, 0, part({1: (5, 5), 2: (7, 7)}, (1, 2)))
    sample(objects, 1, part({1: (6, 6)}))
    sample(objects, 2, part({}, gone=(1,)))
    assert objects.find("queue 1") is None
    sample(objects, 3, part({3: (9, 9)}, (3,)))
    slot = objects.find("queue 3")
    assert slot == 0
    assert [objects.text("name", one) for one in objects.slots_in_order()] == ["queue 2", "queue 3"]
    moments = [BEGAN_MS + at * STEP_MS for at in (3, 2, 1, 0)]
    assert objects.values_at(slot, ("publish",), moments) == [9, 0, 0, 0]  # It began at zero.
    assert len(objects) == 2


def test_idle_objects_take_no_memory_and_the_others_a_bounded_one() -> None:
    bound = 20_000
    objects = table(bound)
    count = 1000
    sample(objects, 0, part(dict.fromkeys(range(1, count + 1), (0, 0)), tuple(range(1, count + 1))))
    sample(objects, 1, part({}))
    assert objects.deltas.size == 0
    for at in range(2, 40):
        sample(objects, at, part(dict.fromkeys(range(1, count + 1), (at, at))))
        assert objects.deltas.size <= bound
    assert len(list(objects.deltas.latest_first())) > 1  # The latest are there.


def test_frames_within_an_interval_are_one() -> None:
    deltas = Deltas(BASIC, NO_BOUND)
    for at in range(20):
        began = BEGAN_MS + at * MS
        delta = run_steps(make_delta(began, began + MS, [([7], {"publish": [1]})]))
        run_steps(deltas.add(delta))
    found = list(deltas.latest_first())
    assert [one.changes["publish"][0] for one in found] == [5, 5, 5, 5]
    assert sum(one.ended_ms - one.began_ms for one in found) == 20 * MS


def test_joined_frames_have_the_sum_of_both() -> None:
    deltas: list[Delta] = []
    for at, ids in enumerate(([3, 1], [2, 3])):
        changes = {"ready": [at + 1, 10]}
        deltas.append(run_steps(make_delta(at, at + 1, [(ids, changes)])))
    both = run_steps(join_deltas(deltas))
    assert dict(zip(both.ids, both.changes["ready"], strict=True)) == {1: 10, 2: 2, 3: 11}
    assert (both.began_ms, both.ended_ms) == (0, 2)


@pytest.mark.parametrize(
    "line", [{}, {"kind": "queue"}, {"kind": "queue", "ids": 7, "columns": {}, "fields": []}]
)
def test_samples_of_another_version_are_told(line: dict[str, Any]) -> None:
    with pytest.raises(BrokerGone, match="another version"):
        parse_part(line)


@pytest.mark.parametrize("missing", ["epoch", "everything", "node", "brokers"])
def test_a_sample_without_a_field_of_its_last_line_is_of_another_version(
    missing: str,
) -> None:
    done = {"epoch": 1, "everything": True, "node": "n", "brokers": []}
    del done[missing]

    class Link:
        async def lines(self, do: str, **fields: object) -> AsyncIterator[dict[str, object]]:
            yield {"done": done}

    with pytest.raises(BrokerGone, match="another version"):
        asyncio.run(read_sample(cast("Any", Link()), Slices(), 0))


def test_a_broker_that_starts_anew_is_read_anew(tmp_path: Path) -> None:
    with LocalConsole(tmp_path) as console:
        with blocking.connect(console.broker.url) as connection:
            connection.channel().declare_queue("kept")
            connection.channel().declare_queue("temporary", durable=False)
        names = [row["name"] for row in console.get("/api/queues")]
        assert names == ["kept", "temporary"]
        console.broker.stop()
        assert console.ask("GET", "/api/queues").status == 503
        console.broker.start()
        assert [row["name"] for row in console.get("/api/queues")] == ["kept"]
