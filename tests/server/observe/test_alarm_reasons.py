# SPDX-License-Identifier: Apache-2.0
"""Which publishers an alarm holds, and what they are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.model.counters import Counters
from headrace.model.events import Event, Events
from headrace.model.ports import Store
from headrace.server.observe.alarms import (
    BACKLOG_MAX,
    EVERYWHERE,
    FULL,
    LAGGING,
    STALL_SHORT_S,
    STALLED,
    Alarms,
)


class Waiting:
    """A transport as alarms see it: a publisher in a virtual host."""

    def __init__(self, reactor: Any, vhost: str) -> None:
        self.reactor = reactor
        self.connection: Any = SimpleNamespace(
            publishes=True,
            blocked=False,
            vhost=SimpleNamespace(name=vhost),
            has_unacked=lambda: True,
        )
        self.waits = False
        self.sips = 0

    def block(self) -> None:
        alarms = self.reactor.alarms
        if alarms.reason(self.connection.vhost):
            self.waits = True
            self.connection.blocked |= not alarms.is_short_stall(self.connection.vhost)
            self.reactor.blocked[self] = None

    def unblock(self) -> None:
        self.waits = self.connection.blocked = False
        self.reactor.blocked.pop(self)

    def read_once(self) -> None:
        self.sips += 1


class Scene:
    """Two virtual hosts with a publisher each."""

    def __init__(self) -> None:
        self.counters = Counters(memory_max=1000)
        self.stores = {"/": Store(), "lab": Store()}
        self.reactor: Any = SimpleNamespace(
            counters=self.counters, alarms=None, alarmed=False, blocked={}, turn=lambda: None
        )
        self.one, self.other = Waiting(self.reactor, "/"), Waiting(self.reactor, "lab")
        transports: Any = [self.one, self.other]
        self.events = Events(self.counters)
        self.told: list[Event] = []
        self.events.add_listener(self.told.append)
        self.now_s = 100.0
        self.alarms = Alarms(
            self.reactor,  # type: ignore[arg-type]
            transports,
            self.stores,
            self.events,
            clock=lambda: self.now_s,
        )

    def held(self) -> tuple[bool, bool]:
        self.alarms.check()
        return self.one.waits, self.other.waits

    def reason(self, vhost: str) -> str:
        return self.alarms.reason(SimpleNamespace(name=vhost))  # type: ignore[arg-type]


def test_a_full_disk_holds_the_publishers_of_its_virtual_host() -> None:
    scene = Scene()
    scene.stores["lab"].full = True
    assert scene.held() == (False, True)
    assert scene.reason("lab") == "low on disk"
    assert scene.reason("/") == ""
    scene.stores["lab"].full = False
    assert scene.held() == (False, False)
    assert [event.kind for event in scene.told] == ["alarm.set", "alarm.cleared"]
    assert {event.facts["source"] for event in scene.told} == {"disk"}


def test_memory_holds_everybody_until_it_is_well_below_the_limit() -> None:
    scene = Scene()
    scene.counters.memory_used = 1251
    assert scene.held() == (True, True)
    scene.counters.memory_used = 1001
    assert scene.held() == (True, True)
    scene.counters.memory_used = 1000
    assert scene.held() == (False, False)


def test_what_waits_for_the_disk_waits_in_memory() -> None:
    scene = Scene()
    scene.stores["/"].appended = BACKLOG_MAX + 1
    assert scene.held() == (True, True)
    scene.stores["/"].synced = BACKLOG_MAX // 2 + 1
    assert scene.held() == (False, False)


def test_reasons_are_joined_as_clients_know_them() -> None:
    scene = Scene()
    scene.counters.memory_used = 2000
    scene.stores["/"].full = True
    assert scene.held() == (True, True)
    assert scene.reason("/") == "low on memory & low on disk"
    assert scene.reason("lab") == "low on memory"


def test_an_operators_alarm_goes_with_its_virtual_host() -> None:
    scene = Scene()
    scene.alarms.set_alarm("lab", "moving")
    assert scene.held() == (False, True)
    del scene.stores["lab"]
    scene.alarms.check()
    assert not scene.alarms.active
    scene.alarms.set_alarm(EVERYWHERE, "moving")
    assert scene.held() == (True, True)
    assert scene.alarms.clear_alarm(EVERYWHERE)
    assert not scene.alarms.clear_alarm(EVERYWHERE)
    assert scene.held() == (False, False)


def test_those_who_wait_and_have_something_to_settle_are_read_in_turn() -> None:
    scene = Scene()
    scene.alarms.set_alarm(EVERYWHERE, "moving")
    for _ in range(4):
        scene.alarms.read_once()
    assert (scene.one.sips, scene.other.sips) == (2, 2)
    scene.one.connection.has_unacked = lambda: False
    scene.alarms.read_once()
    assert (scene.one.sips, scene.other.sips) == (2, 3)


def told(scene: Scene) -> list[bool]:
    return [one.connection.blocked for one in (scene.one, scene.other)]


def test_a_short_stall_of_the_clusters_database_holds_nobody() -> None:
    scene = Scene()
    scene.alarms.lag_max = 1 << 20
    scene.stores["/"].appended = 100
    assert scene.held() == (False, False)
    scene.now_s += STALL_SHORT_S - 0.1
    assert scene.held() == (False, False)
    scene.stores["/"].synced, scene.stores["/"].appended = 100, 200  # A group of several.
    scene.now_s += 0.2
    assert scene.held() == (False, False)
    assert scene.told == []


def test_a_long_stall_of_the_clusters_database_is_told_as_what_it_is() -> None:
    scene = Scene()
    scene.alarms.lag_max = 1 << 20
    scene.stores["lab"].appended = 100
    scene.held()
    scene.now_s += STALL_SHORT_S
    assert scene.held() == (False, True)
    assert (scene.reason("lab"), told(scene)) == (STALLED, [False, True])
    assert [alarm.source for alarm in scene.alarms.active] == ["cluster"]
    scene.stores["lab"].synced = 100
    assert scene.held() == (False, False)


def test_a_full_database_of_the_cluster_holds_everybody() -> None:
    scene = Scene()
    scene.alarms.database_is_full = lambda: True
    assert scene.held() == (True, True)
    assert (scene.reason("lab"), told(scene)) == (FULL, [True, True])
    assert [alarm[:2] for alarm in scene.alarms.active] == [("cluster", EVERYWHERE)]
    scene.alarms.database_is_full = lambda: False
    assert scene.held() == (False, False)
    assert scene.reason("lab") == ""


def test_too_much_that_waits_is_bounded_at_once_and_told_later() -> None:
    scene = Scene()
    scene.alarms.lag_max = 1 << 20
    store = scene.stores["/"]
    store.appended = 1 + (1 << 20)
    assert scene.held() == (True, False)
    assert (scene.reason("/"), told(scene)) == (LAGGING, [False, False])
    scene.now_s += STALL_SHORT_S
    store.appended, store.synced = store.appended + 1, 1  # The database is slow, and goes on.
    assert scene.held() == (True, False)
    assert (scene.reason("/"), told(scene)) == (LAGGING, [True, False])
