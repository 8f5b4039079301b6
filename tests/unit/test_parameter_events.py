# SPDX-License-Identifier: Apache-2.0
"""What operators change is told to who listens to events."""

from headrace.model.events import Event, Events
from headrace.model.parameters import Key
from headrace.model.users import Snapshot
from headrace.server.user_events import tell_changes


def test_policies_limits_and_parameters_that_come_change_and_go() -> None:
    heard: list[Event] = []
    events = Events()
    events.listen(heard.append)
    kept = {Key("/", "policy", "same"): {"pattern": "x"}}
    before = Snapshot(
        parameters={
            **kept,
            Key("/", "policy", "old"): {},
            Key("/", "vhost-limits", "limits"): {"max-queues": 1},
            Key("", "user-limits", "ada"): {},
        }
    )
    after = Snapshot(
        parameters={
            **kept,
            Key("/", "operator_policy", "new"): {"priority": 1},
            Key("/", "vhost-limits", "limits"): {"max-queues": 2},
            Key("", "other", "thing"): 7,
        }
    )
    tell_changes(events, before, after)
    (cleared,) = [event.facts for event in heard if event.kind == "policy.cleared"]
    assert (cleared["vhost"], cleared["component"], cleared["name"]) == ("/", "policy", "old")
    assert {event.kind for event in heard} == {
        "policy.set",
        "policy.cleared",
        "vhost.limits.set",
        "user.limits.cleared",
        "parameter.set",
    }
    (limits,) = [event for event in heard if event.kind == "vhost.limits.set"]
    assert limits.facts["value"] == '{"max-queues": 2}'
