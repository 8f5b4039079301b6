# SPDX-License-Identifier: Apache-2.0
"""Which policy counts for what, what it says together with others, and what is no policy."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.model.arguments.values import QUEUE_ARGUMENTS
from headrace.model.counters import Counters
from headrace.model.errors import InvalidArgument
from headrace.model.policy.effective_arguments import QUORUM_DELIVERY_LIMIT, effective_arguments
from headrace.model.policy.name_patterns import NamePattern
from headrace.model.policy.parameters import Key
from headrace.model.policy.policy import (
    EXCHANGE,
    KEYS,
    KEYS_MAX,
    POLICIES_MAX,
    Policies,
    merge,
    read_policy,
)
from headrace.model.policy.rules import (
    NO_LIMITS,
    Limits,
    Rules,
    read_limits,
    read_rules,
    read_user_limits,
)
from headrace.model.ports import Store
from headrace.model.queue.queue import Queue
from headrace.model.scheduler import Scheduler
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.apply_policies import SLICE
from headrace.model.vhost.virtual_host import VirtualHost


def made(**rules: Any) -> VirtualHost:
    def make_stream(name: str, **options: Any) -> Queue:
        return Stream(name, StreamLog(), **options)

    counters = Counters(now_ms=1000)
    vhost = VirtualHost(
        "/", store=Store(), counters=counters, scheduler=Scheduler(), make_stream=make_stream
    )
    vhost.set_rules(Rules(**rules))
    return vhost


def say(pattern: str, priority: int = 0, to: str = "queues", **definition: Any) -> dict[str, Any]:
    keys = {name.replace("_", "-"): value for name, value in definition.items()}
    return {"pattern": pattern, "definition": keys, "priority": priority, "apply-to": to}


def test_one_policy_counts_the_one_with_the_highest_priority() -> None:
    policies = Policies(
        {
            "b": say("^o", max_length=1),
            "a": say("rd", max_length=2),
            "low": say(".*", -1, max_length=3, expires=4),
            "high": say("^orders$", 9, max_length=5),
            "x": say(".*", 99, to="exchanges", alternate_exchange="x"),
            "s": say(".*", 50, to="streams", max_age="1h"),
        }
    )
    assert policies.settings("classic", "orders") == {"x-max-length": 5}
    assert policies.settings("classic", "ord") == {"x-max-length": 2}  # The first by name.
    assert policies.settings("quorum", "o") == {"x-max-length": 1}
    assert policies.settings("classic", "none") == {"x-max-length": 3, "x-expires": 4}
    assert policies.settings("stream", "orders") == {"x-max-age": "1h"}
    assert policies.settings("exchange", "orders") == {"alternate-exchange": "x"}


def test_operator_policies_restrict_policies_and_both_restrict_arguments() -> None:
    policies = Policies(
        {"p": say(".*", max_length=10, message_ttl=100, overflow="drop-head", max_age="2h")},
        {"o": say(".*", max_length=20, message_ttl=50, overflow="reject-publish", expires=9)},
    )
    assert policies.settings("classic", "q") == {
        "x-max-length": 10,
        "x-message-ttl": 50,
        "x-overflow": "reject-publish",
        "x-expires": 9,
    }
    own = {"x-max-length": 5, "x-expires": 99, "x-overflow": "reject-publish-dlx", "other": 1}
    assert merge(policies.settings("classic", "q"), own) == {
        "x-max-length": 5,
        "x-message-ttl": 50,
        "x-overflow": "reject-publish-dlx",
        "x-expires": 9,
        "other": 1,
    }


@pytest.mark.parametrize(
    ("operator", "own", "kept"),
    [
        ({"max_length": 2, "overflow": "reject-publish"}, "drop-head", "reject-publish"),
        ({"max_length_bytes": 2, "overflow": "drop-head"}, "reject-publish", "drop-head"),
        ({"max_length": 2}, "ring-strict", "ring-strict"),
        ({"max_length": 2}, "none", "reject-publish"),
        ({"max_length": 2}, "flow-control", "reject-publish"),
        ({"max_length": 2}, "flow-to-disk", "reject-publish"),
        ({"overflow": "reject-publish"}, "none", "none"),
        ({"expires": 2}, "none", "none"),
    ],
)
def test_who_limits_the_length_says_how_it_is_kept(
    operator: dict[str, Any], own: str, kept: str
) -> None:
    vhost = made(policies=Policies({"p": say(".*", overflow=own)}, {"o": say(".*", **operator)}))
    declared = vhost.declare_queue("q", arguments={"x-overflow": own, "x-max-length": 9})
    assert vhost.effective_arguments(declared)["x-overflow"] == kept


def test_the_stricter_limit_counts() -> None:
    assert merge({"x-max-age": "120m"}, {"x-max-age": "1h"}) == {"x-max-age": "1h"}
    assert merge({"x-delivery-limit": -1}, {"x-delivery-limit": 7}) == {"x-delivery-limit": 7}
    assert merge({"x-delivery-limit": 7}, {"x-delivery-limit": -1}) == {"x-delivery-limit": 7}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "is not an object"),
        ({"definition": {"expires": 1}}, "has no pattern"),
        (say("(", expires=1), "is not a valid regular expression: missing )"),
        (say("(?=a)b", expires=1), "is not a valid regular expression"),
        (say("^(?!a", expires=1), "is not a valid regular expression"),
        (say(r"(a)\1", expires=1), "is not a valid regular expression"),
        (say("(((x{100}){100}){100})", expires=1), "is not a valid regular expression"),
        (say("a|b" * 1000, expires=1), "longer than 1024 characters"),
        (say("a"), "has no definition"),
        (say("a", max_lenght=1), "unknown policy key 'max-lenght'; did you mean 'max-length'?"),
        (say("a", x_max_priority=1), "unknown policy key 'x-max-priority'"),
        (say("a", max_length=-1), "invalid value of 'max-length'"),
        (say("a", max_length="1"), "'max-length': a whole number is needed, not '1'"),
        (say("a", expires=0), "invalid value of 'expires'"),
        (say("a", overflow="never"), "invalid value of 'overflow'"),
        (say("a", max_age="1 day"), "invalid value of 'max-age'"),
        (say("a", to="streams", message_ttl=1), "has no meaning for what the policy applies to"),
        (say("a", to="exchanges", max_length=1), "has no meaning for what the policy applies to"),
        (say("a", to="classic_queues", max_age="1h"), "has no meaning for what the policy applies"),
        (say("a", to="cats", expires=1), "applies to 'cats'"),
        (say("a", to=["queues"], expires=1), "applies to"),  # type: ignore[arg-type]
        (say("a", True, expires=1), "must be a whole number"),
        (say("a", 1 << 40, expires=1), "must be a whole number"),
        ({**say("a", expires=1), "colour": 1}, "unknown field 'colour'"),
        ({**say("a"), "definition": {str(n): 1 for n in range(KEYS_MAX + 1)}}, "more than 64 keys"),
        (
            say("a", delayed_retry_min=9, delayed_retry_max=5),
            "delayed-retry-min is greater than delayed-retry-max",
        ),
        (
            say("a", dead_letter_strategy="at-least-once", overflow="drop-head"),
            "at-least-once dead-lettering contradicts overflow drop-head",
        ),
    ],
)
def test_what_is_no_policy_is_refused_with_the_reason(value: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_policy("p", value)
    assert said in caught.value.text


def test_hostile_policies_are_left_out_and_cost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    good = {f"p{n}": say(f"^({n}|x.*)*$", -n, max_length=n) for n in range(POLICIES_MAX - 1)}
    policies = Policies({"bad": say("(", expires=1), **good, "late": say(".*", 9, expires=1)})
    assert len(policies.policies) == POLICIES_MAX - 1
    assert "is not a valid regular expression" in caplog.text
    assert "1025 of policy are more than 1024" in caplog.text
    began = time.thread_time()
    policies.settings("classic", "x" * 254 + "!")  # Would take for ever with backtracking.
    assert time.thread_time() - began < 5


def test_names_may_be_excluded_at_the_beginning_of_a_pattern() -> None:
    ours = NamePattern(r"^(?!amq\.|[(]?tmp(?:-x)?$).*")
    assert [name for name in ("amq.x", "a", "tmp", "(tmp-x", "tmp2") if ours.matches(name)] == [
        "a",
        "tmp2",
    ]
    assert not NamePattern(r"^(?!a)b").matches("cb")


def test_harmless_keys_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):  # It is read again whenever anything of its kind changes.
        policy = read_policy("idle", say("^ha", ha_mode="all", federation_upstream_set="all"))
        assert policy.arguments == {}
    assert caplog.text.count("policy 'idle': 'ha-mode' has no effect on this broker") == 1


def test_queues_follow_policies_that_come_change_and_go() -> None:
    vhost = made()
    queue = vhost.declare_queue("orders", arguments={"x-max-length": 100})
    other = vhost.declare_queue("other", arguments={"x-queue-type": "quorum"}, durable=True)
    assert other.delivery_limit == QUORUM_DELIVERY_LIMIT
    exchange = vhost.declare_exchange("x", "direct")
    own = vhost.declare_exchange("own", "direct", arguments={"alternate-exchange": "amq.topic"})
    generation = vhost.generation
    vhost.set_rules(
        Rules(
            Policies(
                {
                    "short": say("^ord", max_length=2, dead_letter_exchange="x"),
                    "often": say("^other", delivery_limit=3),
                    "alt": say(".*", to="exchanges", alternate_exchange="amq.fanout"),
                }
            )
        )
    )
    assert (queue.max_length, queue.dead_letter_exchange) == (2, "x")
    assert (other.max_length, other.delivery_limit) == (-1, 3)
    assert (exchange.alternate, own.alternate) == ("amq.fanout", "amq.topic")
    assert vhost.serves_as_alternate("amq.fanout")
    assert vhost.exchanges[""].alternate is None
    assert vhost.generation > generation  # Remembered routes are void.
    late = vhost.declare_queue("ordinary")
    assert late.max_length == 2
    # Declaring again compares what was declared, not what policies say.
    assert vhost.declare_queue("orders", arguments={"x-max-length": 100}) is queue

    vhost.set_rules(Rules())
    assert (queue.max_length, queue.dead_letter_exchange, late.max_length) == (100, None, -1)
    assert other.delivery_limit == QUORUM_DELIVERY_LIMIT
    assert exchange.alternate is None
    assert not vhost.serves_as_alternate("amq.fanout")


def test_the_brokers_own_queues_follow_no_policy() -> None:
    vhost = made(policies=Policies({"p": say(".*", max_length=0)}))
    queue = vhost.declare_queue(fresh_name="amq.headrace.service")
    assert queue.max_length == -1


def test_what_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    parameters = {
        Key("/", "policy", "p"): say("a", max_length=1),
        Key("/", "operator_policy", "o"): 7,
        Key("/", "vhost-limits", "limits"): {"max-cats": 1},
        Key("/", "vhost-metadata", "metadata"): {"default_queue_type": "quorum", "tags": ["a"]},
        Key("other", "policy", "p"): say(".*", max_length=2),
        Key("", "user-limits", "ada"): {"max-connections": 3, "max-channels": -5},
        Key("", "user-limits", "bob"): "many",
    }
    rules = read_rules(parameters, "/", default_queue_type="classic", unknown_arguments="log")
    assert rules.policies.settings("classic", "a") == {"x-max-length": 1}
    assert (rules.limits, rules.default_queue_type) == (NO_LIMITS, "quorum")
    assert rules.unknown_arguments == "log"
    assert "policy 'o' is not an object" in caplog.text
    assert "unknown limit 'max-cats'" in caplog.text
    assert read_user_limits(parameters, "ada") == Limits(connections=3)
    assert read_user_limits(parameters, "bob") == read_user_limits(parameters, "eve") == NO_LIMITS


@pytest.mark.parametrize(
    "value", [{"max-queues": True}, {"max-queues": "1"}, {"max-queues": 1 << 60}, [], {1: 1}]
)
def test_limits_are_numbers(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        read_limits(value)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 1"):
        read_limits({"max-message-rate": 0})


WHAT_COUNTS: dict[str, tuple[Any, Callable[[Any], Any], Any]] = {
    # A value of each key, where it shows on what is there already, and as what.
    "message-ttl": (70, lambda q: q.message_ttl_ms, 70),
    "expires": (70, lambda q: q.expires_ms, 70),
    "max-length": (70, lambda q: q.max_length, 70),
    "max-length-bytes": (70, lambda q: getattr(q, "log", q).max_length_bytes, 70),
    "overflow": ("reject-publish", lambda q: q.limits and q.limits.policy, 1),
    "dead-letter-exchange": ("x", lambda q: q.dead_letter_exchange, "x"),
    "dead-letter-routing-key": ("k", lambda q: q.dead_letter_routing_key, "k"),
    "dead-letter-strategy": ("at-least-once", lambda q: q.dead_letter_at_least_once, True),
    "delivery-limit": (7, lambda q: q.delivery_limit, 7),
    "consumer-timeout": (
        70,
        lambda q: q.vhost.effective_arguments(q).get("x-consumer-timeout"),
        70,
    ),
    "delayed-retry-type": ("failed", lambda q: q.backoff and q.backoff.failed, True),
    "delayed-retry-min": (70, lambda q: q.backoff and q.backoff.min_ms, 70),
    "delayed-retry-max": (70, lambda q: q.backoff and q.backoff.max_ms, 70),
    "delayed-retry-multiplier": (7, lambda q: q.backoff and q.backoff.multiplier, 7),
    "qpid.flow_stop_count": (7, lambda q: q.guard and q.guard.stop_count, 7),
    "qpid.flow_stop_size": (7, lambda q: q.guard and q.guard.stop_size, 7),
    "qpid.flow_resume_count": (7, lambda q: q.guard and q.guard.resume_count, 7),
    "qpid.flow_resume_size": (7, lambda q: q.guard and q.guard.resume_size, 7),
    "qpid.alert_count": (7, lambda q: q.guard and q.guard.alert_count, 7),
    "qpid.alert_size": (7, lambda q: q.guard and q.guard.alert_size, 7),
    "qpid.alert_repeat_gap": (7, lambda q: q.guard and q.guard.gap_ms, 7000),
    "qpid-maximum-message-age": (70, lambda q: q.guard and q.guard.alert_age_ms, 70),
    "max-age": ("7s", lambda s: s.log.max_age_ms, 7000),
    "stream-max-segment-size-bytes": (70, lambda s: s.log.segments_of, 70),
    "local-max-length-bytes": (70, lambda s: s.log.here[0], 70),
    "local-max-age": ("7s", lambda s: s.log.here[1], 7000),
    "alternate-exchange": ("amq.fanout", lambda x: x.alternate, "amq.fanout"),
}
NEEDED: dict[str, dict[str, Any]] = {  # What a key says nothing without.
    "overflow": {"max-length": 9},
    "dead-letter-strategy": {"dead-letter-exchange": ""},
    "delayed-retry-max": {"delayed-retry-type": "all"},
    "delayed-retry-multiplier": {"delayed-retry-type": "all"},
    "qpid.flow_resume_count": {"qpid.flow_stop_count": 9},
    "qpid.flow_resume_size": {"qpid.flow_stop_size": 9},
}


class Segments(StreamLog):
    """Remembers what files are to be like, which memory has none of."""

    segments_of = 0
    here = (-1, -1)

    def limit_segments(self, octets: int) -> None:
        self.segments_of = octets

    def limit_local(self, max_length_bytes: int, max_age_ms: int) -> None:
        self.here = (max_length_bytes, max_age_ms)


@pytest.mark.parametrize("said_by", ["policies", "operator"])
@pytest.mark.parametrize("key", list(KEYS))
def test_every_key_counts_for_what_is_there_and_no_longer(key: str, said_by: str) -> None:
    value, shows, wanted = WHAT_COUNTS[key]
    vhost = made()
    vhost.make_stream = lambda name, **options: Stream(name, Segments(), **options)
    target: Any
    for kind in KEYS[key].kinds:
        if kind == EXCHANGE:
            target = vhost.declare_exchange("it", "direct")
        else:
            target = vhost.declare_queue(kind, arguments={"x-queue-type": kind}, durable=True)
            assert KEYS[key].argument in QUEUE_ARGUMENTS
        before = shows(target)
        policy = {"pattern": "", "definition": {key: value, **NEEDED.get(key, {})}}
        vhost.set_rules(Rules(Policies(**{said_by: {"p": policy}})))
        assert shows(target) == wanted != before
        vhost.set_rules(Rules())
        assert shows(target) == before


def test_a_threshold_of_nothing_is_no_threshold() -> None:
    stop = "qpid.flow_stop_count"
    assert merge({stop: 0}, {stop: "5"}) == {stop: "5"}
    assert merge({stop: 3}, {stop: "5"}) == {stop: 3}
    with pytest.raises(InvalidArgument, match=r"qpid\.flow_resume_count is greater"):
        read_policy("p", {"pattern": "", "definition": {stop: 3, "qpid.flow_resume_count": 4}})


def test_rules_are_applied_to_many_queues_a_little_at_a_time() -> None:
    vhost = made()
    for n in range(3 * SLICE):
        vhost.declare_queue(f"q{n}")

    def lengths() -> list[int]:
        return [vhost.queues[f"q{n}"].max_length for n in range(3 * SLICE)]

    vhost.set_rules(Rules(Policies({"p": say("^q", max_length=5)})))
    assert 0 < lengths().count(5) <= SLICE
    assert vhost.declare_queue("q-new").max_length == 5, "a new queue goes by the new rules at once"
    # Others come before these are applied everywhere; queues that are gone meanwhile harm nothing.
    vhost.set_rules(Rules(Policies({"p": say("^q", max_length=7)})))
    vhost.delete_queue(f"q{3 * SLICE - 1}")
    vhost.declare_queue(f"q{3 * SLICE - 1}")
    for now_ms in range(1001, 1010):
        vhost.scheduler.run(now_ms)
    assert set(lengths()) == {7}
    assert not vhost.scheduler.next_ms
    vhost.set_rules(Rules())
    vhost.scheduler.run(1020)
    while vhost.scheduler.next_ms:
        vhost.scheduler.run(vhost.scheduler.next_ms)
    assert set(lengths()) == {-1}


SMALLER, ARGUMENT, POLICY = "the smaller", "the argument", "the policy"
WEAKER: dict[str, tuple[Any, Any]] = {  # A stricter and a laxer value, or two different ones.
    "overflow": ("drop-head", "reject-publish"),
    "dead-letter-exchange": ("x", "y"),
    "dead-letter-routing-key": ("k", "l"),
    "dead-letter-strategy": ("at-most-once", "at-least-once"),
    "delayed-retry-type": ("failed", "all"),
    "max-age": ("1h", "7D"),
    "local-max-age": ("1h", "7D"),
}
BY_ARGUMENT = {
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "delayed-retry-type",
    "delayed-retry-min",
    "delayed-retry-max",
    "delayed-retry-multiplier",
    "qpid.alert_repeat_gap",
}
ANSWERS = [  # What counts of a policy and a queue's own argument, as in docs/guides/policies.md.
    *[
        (key, kind, ARGUMENT if key in BY_ARGUMENT else SMALLER)
        for key, policy_key in KEYS.items()
        for kind in sorted(policy_key.kinds - {"stream", EXCHANGE})
        if key != "overflow"
    ],
    ("overflow", "classic", ARGUMENT),
    ("overflow", "quorum", POLICY),
    ("max-age", "stream", POLICY),
    ("max-length-bytes", "stream", POLICY),
    ("stream-max-segment-size-bytes", "stream", POLICY),
    ("local-max-age", "stream", POLICY),
    ("local-max-length-bytes", "stream", POLICY),
]


def test_the_table_of_answers_has_every_key_and_kind() -> None:
    assert sorted((key, kind) for key, kind, _ in ANSWERS) == sorted(
        (key, kind) for key, policy_key in KEYS.items() for kind in policy_key.kinds - {EXCHANGE}
    )


@pytest.mark.parametrize("said_by", ["policies", "operator"])
@pytest.mark.parametrize(("key", "kind", "answer"), ANSWERS)
def test_a_policy_and_an_argument(key: str, kind: str, answer: str, said_by: str) -> None:
    """Either says the smaller of two values, or one of two; streams follow their policy."""
    smaller, larger = WEAKER.get(key, (70, 700))
    argument = KEYS[key].argument
    for own, policy in ((smaller, larger), (larger, smaller)):
        rule = {"pattern": "", "definition": {key: policy}}
        rules = Rules(Policies(**{said_by: {"p": rule}}))
        own_arguments = {"x-queue-type": kind, argument: own}
        queue = Queue("q", store=Store(), counters=Counters(now_ms=0), arguments=own_arguments)
        wanted = {SMALLER: smaller, ARGUMENT: own, POLICY: policy}[answer]
        assert effective_arguments(rules, queue)[argument] == wanted


def test_a_policy_that_goes_leaves_a_stream_its_arguments() -> None:
    vhost = made(policies=Policies({"p": say("", max_age="7D", max_length_bytes=50_000_000)}))
    own = {"x-queue-type": "stream", "x-max-age": "1h", "x-max-length-bytes": 1_000_000}
    stream = vhost.declare_queue("s", arguments=own, durable=True)
    assert isinstance(stream, Stream)
    assert (stream.log.max_age_ms, stream.log.max_length_bytes) == (7 * 86_400_000, 50_000_000)
    vhost.set_rules(Rules())
    assert (stream.log.max_age_ms, stream.log.max_length_bytes) == (3_600_000, 1_000_000)
