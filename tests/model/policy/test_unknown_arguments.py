# SPDX-License-Identifier: Apache-2.0
"""Arguments under other brokers' names, and unknown ones."""

from typing import Any

import pytest

from headrace.model.arguments.aliases import QUEUE_ALIASES
from headrace.model.arguments.values import QUEUE_ARGUMENTS, check_queue_arguments
from headrace.model.errors import InvalidArgument, NotUnderstood
from headrace.model.policy import unknown_arguments
from headrace.model.policy.unknown_arguments import HARMLESS, MEANINGFUL, translate_arguments


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_arguments, "_logged", set())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"qpid.max_count": 5}, {"x-max-length": 5}),
        ({"qpid.max_size": "1024"}, {"x-max-length-bytes": 1024}),
        ({"qpid.policy_type": "ring"}, {"x-overflow": "drop-head"}),
        ({"qpid.policy_type": "REJECT"}, {"x-overflow": "reject-publish"}),
        ({"qpid.policy_type": "flow_to_disk"}, {"x-overflow": "flow-to-disk"}),
        ({"qpid.auto_delete_timeout": 3}, {"x-expires": 3000}),
        ({"qpid.auto_delete_timeout": 0}, {}),
        ({"x-qpid-priorities": 4}, {"qpid.priorities": 4}),
        ({"x-qpid-maximum-delivery-count": 3}, {"x-delivery-limit": 2}),
        ({"x-qpid-maximum-delivery-count": 0}, {}),
        ({"alternateExchange": "x"}, {"alternate-exchange": "x"}),
        ({"x-alternate-exchange": "x"}, {"alternate-exchange": "x"}),
        ({"qpid.max_count": 5, "x-max-length": 5}, {"x-max-length": 5}),
    ],
)
def test_other_names_mean_ours(given: dict[str, Any], meant: dict[str, Any]) -> None:
    translated = translate_arguments(given, "queue 'q'", "refuse")
    assert translated == {**given, **meant}  # What was given stays: clients look for it.
    assert translate_arguments(translated, "queue 'q'", "refuse") == translated


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"qpid.max_count": "many"},
            "invalid arg 'qpid.max_count' for queue 'q': expected a number",
        ),
        ({"qpid.max_count": True}, "invalid arg 'qpid.max_count' for queue 'q': expected a number"),
        ({"qpid.max_count": -1}, "invalid arg 'qpid.max_count' for queue 'q': -1 is negative"),
        ({"qpid.policy_type": "explode"}, "invalid arg 'qpid.policy_type' for queue 'q'"),
    ],
)
@pytest.mark.parametrize("mode", ["default", "refuse", "log", "ignore"])
def test_wrong_values_are_always_refused(given: dict[str, Any], text: str, mode: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        translate_arguments(given, "queue 'q'", mode)
    assert caught.value.text.startswith(text)
    assert not isinstance(caught.value, NotUnderstood)


def test_what_contradicts_is_refused_or_loses(caplog: pytest.LogCaptureFixture) -> None:
    arguments = {"qpid.max_count": 5, "x-max-length": 7}
    for mode in ("default", "refuse"):
        with pytest.raises(InvalidArgument, match="it contradicts 'x-max-length'"):
            translate_arguments(arguments, "queue 'q'", mode)
    assert translate_arguments(arguments, "queue 'q'", "ignore") == arguments
    assert not caplog.text
    assert translate_arguments(arguments, "queue 'q'", "log") == arguments
    assert "argument 'qpid.max_count' is ignored: it contradicts 'x-max-length'" in caplog.text


@pytest.mark.parametrize("name", sorted(MEANINGFUL - QUEUE_ARGUMENTS.keys() - QUEUE_ALIASES.keys()))
def test_what_would_silently_change_behaviour_is_refused(name: str) -> None:
    text = f"invalid arg '{name}' for queue 'q': this broker does not have it"
    for mode in ("default", "refuse"):
        with pytest.raises(NotUnderstood) as caught:
            translate_arguments({name: 1}, "queue 'q'", mode)
        assert caught.value.text == text
    assert translate_arguments({name: 1}, "queue 'q'", "log") == {name: 1}
    assert translate_arguments({name: 1}, "queue 'q'", "ignore") == {name: 1}


def test_names_that_others_ignore_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    strange = {"x-ha-policy": "all", "team": "billing", "x-qpid-description": "my queue"}
    assert translate_arguments(strange, "queue 'q'", "default") == strange
    assert not caplog.text
    with pytest.raises(NotUnderstood, match="'team'"):
        translate_arguments(strange, "queue 'q'", "refuse")
    assert translate_arguments(dict.fromkeys(HARMLESS, 1), "queue 'q'", "refuse")
    translate_arguments({"x-mesage-ttl": 5}, "queue 'q'", "default")
    translate_arguments({"x-mesage-ttl": 5}, "queue 'q2'", "default")  # Said once.
    assert caplog.text.count("'x-message-ttl' may be meant") == 1


def test_strange_names_fill_no_log_and_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(unknown_arguments.NAMES_LOGGED_MAX + 10):
        translate_arguments({f"strange-{number}": 1}, "queue 'q'", "log")
    assert (
        len(caplog.records) == len(unknown_arguments._logged) == unknown_arguments.NAMES_LOGGED_MAX
    )
    with pytest.raises(NotUnderstood) as caught:
        translate_arguments({"y" * 5000: 1}, "queue 'q'", "refuse")
    assert len(caught.value.text) < 400


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("x-max-length", "5", 5),
        ("x-max-length-bytes", "+007", 7),
        ("x-message-ttl", "0", 0),
        ("x-delivery-limit", "-1", -1),
        ("qpid.max_count", "5", "5"),  # The number is in x-max-length, its own stays as it came.
        ("x-dead-letter-routing-key", "5", "5"),
    ],
)
def test_the_text_of_a_number_is_that_number(name: str, text: str, number: object) -> None:
    translated = translate_arguments({name: text}, "queue 'q'", "default")
    assert translated[name] == number
    assert type(translated[name]) is type(number)


@pytest.mark.parametrize("text", ["", "five", "1.5", "0x5", " 5", "5\n", "\u0665", "1" * 20, "--5"])
def test_what_is_no_number_stays_a_text(text: str) -> None:
    arguments = {"x-max-length": text}
    assert translate_arguments(arguments, "queue 'q'", "default") == arguments
    with pytest.raises(InvalidArgument, match="expected integer, got longstr"):
        check_queue_arguments(arguments, "queue 'q'")
