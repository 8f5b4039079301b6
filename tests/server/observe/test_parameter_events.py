# SPDX-License-Identifier: Apache-2.0
"""Changes by operators are events."""

from headrace.model.events import Event, Events
from headrace.model.policy.accounts import Snapshot
from headrace.model.policy.parameters import Key
from headrace.server.observe.account_events import emit_changes


def test_policies_limits_and_parameters_that_come_change_and_go() -> None:
    heard: list[Event] = []
    events = Events()
    events.add_listener(heard.append)
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
            Key("/", "operator_policy", "new"): {"priority": 1, "definition": {"max-length": 3}},
            Key("/", "vhost-limits", "limits"): {"max-queues": 2},
            Key("", "other", "thing"): 7,
            Key("", "other", "large"): [1 << 64],  # Which no field table holds.
        }
    )
    emit_changes(events, before, after)
    told = [(event.kind, dict(event.facts)) for event in heard]
    for _, facts in told:
        assert facts.pop("user_who_performed_action") == "rmq-internal"
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits"}
    operators = {"vhost": "/", "component": "operator_policy", "name": "new"}
    wanted = [
        ("policy.cleared", {"vhost": "/", "name": "old"}),
        ("user.limits.cleared", {"name": "limits", "username": "ada"}),
        ("policy.set", {**operators, "priority": 1, "definition": {"max-length": 3}}),
        (
            "parameter.set",
            {**operators, "value": {"priority": 1, "definition": {"max-length": 3}}},
        ),
        ("vhost.limits.set", {"vhost": "/", "name": "limits", "max-queues": 2}),
        ("parameter.set", {**limits, "value": {"max-queues": 2}}),
        ("parameter.set", {"component": "other", "name": "thing", "value": 7}),
        ("parameter.set", {"component": "other", "name": "large", "value": f"[{1 << 64}]"}),
    ]
    assert sorted(told, key=repr) == sorted(wanted, key=repr)
