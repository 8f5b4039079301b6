# SPDX-License-Identifier: Apache-2.0
"""Operators are warned once, and told when it is over."""

from headrace.model.events import Event, Events
from headrace.server.cluster.warnings import BEHIND_MAX, BEHIND_S, ClusterWarnings

ENOUGH = {"/": BEHIND_MAX}
FAR = {"/": BEHIND_MAX + 1, "lab": 3}


def warned() -> tuple[ClusterWarnings, list[tuple[str, object]]]:
    events, heard = Events(), []

    def listen(event: Event) -> None:
        heard.append((event.kind, event.facts["vhost"]))

    events.listen(listen)
    return ClusterWarnings(events), heard


def test_a_lease_that_is_nearly_lost() -> None:
    warnings, heard = warned()
    warnings.check(0.0, 0.9, {})
    assert warnings.active == {}
    for left in (0.49, 0.2):
        warnings.check(1.0, left, {})
        assert "nearly lost" in warnings.active[""]
    warnings.check(2.0, 0.9, {})
    assert warnings.active == {}
    warnings.check(3.0, None, {})  # It has ended, or nothing is served.
    assert heard == [("cluster.warning.set", ""), ("cluster.warning.cleared", "")]


def test_a_copy_that_stays_far_behind() -> None:
    warnings, heard = warned()
    warnings.check(0.0, None, FAR)
    warnings.check(BEHIND_S - 1, None, FAR)
    warnings.check(BEHIND_S, None, ENOUGH)  # It has caught up meanwhile.
    warnings.check(BEHIND_S + 1, None, FAR)
    assert (warnings.active, heard) == ({}, [])
    warnings.check(2 * BEHIND_S + 1, None, FAR)
    assert warnings.active == {"/": f"the copy of vhost '/' is behind by {BEHIND_MAX + 1} entries"}
    warnings.check(2 * BEHIND_S + 2, None, {})
    assert heard == [("cluster.warning.set", "/"), ("cluster.warning.cleared", "/")]
