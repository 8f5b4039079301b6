# SPDX-License-Identifier: Apache-2.0
"""Patterns of policies and permissions: no captures, and steps by time."""

from __future__ import annotations

import pytest

from headrace.gateway.security.regex import compile_search
from headrace.model.counters import Counters
from headrace.model.policy.name_patterns import NamePattern
from headrace.model.policy.parameters import Key
from headrace.model.policy.rules import read_rules
from headrace.model.ports import Store
from headrace.model.vhost.apply_policies import SLICE, SLICE_S, RulesChange
from headrace.model.vhost.virtual_host import VirtualHost
from support.growth import DOUBLED_MAX, growth_of

CAPTURES = "(a?)" * 250


@pytest.mark.parametrize("pattern", ["(a?)" * 250, "((a*)*b?)*" * 100, "^(?!(a?)+b)(a|aa)*$"])
def test_a_match_takes_time_by_the_length_of_the_name(pattern: str) -> None:
    assert growth_of(lambda size: "a" * size, NamePattern(pattern).matches) <= DOUBLED_MAX


@pytest.mark.parametrize("pattern", ["(a?)" * 250, "((a*)*b?)*" * 100])
def test_a_pattern_of_permissions_has_no_captures(pattern: str) -> None:
    match = compile_search(pattern)("a" * 200)
    assert match is not None
    assert match.groups() == ()  # type: ignore[attr-defined]
    assert growth_of(lambda size: "a" * size, compile_search(pattern)) <= DOUBLED_MAX


def test_a_pattern_of_a_policy_has_no_captures() -> None:
    match = NamePattern(CAPTURES)._search("aaa")
    assert match is not None
    assert match.groups() == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("each_s", "most"), [(SLICE_S / 8, 9), (SLICE_S * 4, 1), (0.0, SLICE)])
def test_changed_rules_are_applied_in_steps_of_time(each_s: float, most: int) -> None:
    counters = Counters(now_ms=1_000_000)
    vhost = VirtualHost("/", store=Store(), counters=counters)
    for at in range(3 * SLICE):
        vhost.declare_queue(f"q{at}")
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += each_s
        return now_s

    before = vhost.rules
    value = {"pattern": CAPTURES, "definition": {"max-length": 5}}
    vhost.rules = read_rules({Key("/", "policy", "p"): value}, "/")
    counters.clock = clock
    change = RulesChange(vhost, before)
    steps = 0
    while True:
        done = sum(queue.max_length == 5 for queue in vhost.queues.values())
        more = change.step()
        steps += 1
        assert sum(q.max_length == 5 for q in vhost.queues.values()) - done <= most
        if not more:
            break
    assert all(queue.max_length == 5 for queue in vhost.queues.values())
    assert steps >= 3 * SLICE / most
