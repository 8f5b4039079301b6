# SPDX-License-Identifier: Apache-2.0
"""Operators are warned once, and told when it is over."""

from headrace.model.events import Event, Events
from headrace.server.cluster.warnings import (
    BEHIND_MAX,
    BEHIND_S,
    COPY,
    DATABASE,
    LEASE,
    ClusterWarnings,
    Warned,
)

NOTHING: dict[str, str] = {}
ENOUGH = {"/": BEHIND_MAX}
FAR = {"/": BEHIND_MAX + 1, "lab": 3}


def warned() -> tuple[ClusterWarnings, list[tuple[str, object]]]:
    events, heard = Events(), []

    def listen(event: Event) -> None:
        heard.append((event.kind, event.facts["vhost"]))

    events.add_listener(listen)
    return ClusterWarnings(events), heard


def test_a_lease_that_is_nearly_lost() -> None:
    warnings, heard = warned()
    warnings.check(0.0, 0.9, {}, NOTHING)
    assert warnings.active == {}
    for left in (0.49, 0.2):
        warnings.check(1.0, left, {}, NOTHING)
        assert "nearly lost" in warnings.active[Warned(LEASE)]
    warnings.check(2.0, 0.9, {}, NOTHING)
    assert warnings.active == {}
    warnings.check(3.0, None, {}, NOTHING)  # It has ended, or nothing is served.
    assert heard == [("cluster.warning.set", ""), ("cluster.warning.cleared", "")]


def test_a_copy_that_stays_far_behind() -> None:
    warnings, heard = warned()
    warnings.check(0.0, None, FAR, NOTHING)
    warnings.check(BEHIND_S - 1, None, FAR, NOTHING)
    warnings.check(BEHIND_S, None, ENOUGH, NOTHING)  # It has caught up meanwhile.
    warnings.check(BEHIND_S + 1, None, FAR, NOTHING)
    assert (warnings.active, heard) == ({}, [])
    warnings.check(2 * BEHIND_S + 1, None, FAR, NOTHING)
    text = f"the copy of vhost '/' is behind by {BEHIND_MAX + 1} entries"
    assert warnings.active == {Warned(COPY, "/"): text}
    warnings.check(2 * BEHIND_S + 2, None, {}, NOTHING)
    assert heard == [("cluster.warning.set", "/"), ("cluster.warning.cleared", "/")]


def test_what_the_last_look_at_the_database_found() -> None:
    warnings, heard = warned()
    for text in ("its commits wait for no standby", "its commits wait for none", ""):
        warnings.check(0.0, 0.9, {}, {DATABASE: text})
        assert list(warnings.active.values()) == ([text] if text else [])
    assert heard == [("cluster.warning.set", ""), ("cluster.warning.cleared", "")]
