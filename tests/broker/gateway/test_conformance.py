# SPDX-License-Identifier: Apache-2.0
"""The checks of `headrace conformance`, against our broker in every version that it serves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.check.conformance import LABELS, conformance
from headrace.client.url import parse_url
from headrace.conformance import CHECKS, Check, Site, site
from headrace.conformance.run import VERSIONS
from headrace.protocol.codec_0_10 import ExchangeDeclare, ExchangeQuery
from headrace.protocol.codec_0_10 import QueueDeclare as QueueDeclare010
from headrace.protocol.codec_0_10 import QueueDelete as QueueDelete010
from headrace.protocol.codec_0_x import QueueDeclare
from headrace.spec.tables import V0_9_1, V0_10
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.client.url import Settings
    from headrace.spec.tables import Version
    from support.brokers.broker_process import Served

PATIENT = ["--timeout", f"{PATIENCE_S:g}"]

CASES = [
    pytest.param(
        check,
        version,
        id=f"{check.name}-{version.label}",
        marks=[
            pytest.mark.rule(rule) for rule in check.rules if rule.startswith(f"{version.label}/")
        ],
    )
    for check in CHECKS.values()
    for version in check.versions
]


def settings_of(served: Served) -> Settings:
    """Where the broker is, for who waits for as long as it takes."""
    return replace(parse_url(served.url), connection_timeout_s=PATIENCE_S)


@pytest.mark.parametrize(("check", "version"), CASES)
def test_the_broker_conforms(served: Served, check: Check, version: Version) -> None:
    with site(settings_of(served), version) as one:
        check.run(one)


def test_the_command_names_the_versions() -> None:
    assert tuple(VERSIONS) == LABELS


def test_the_command_prints_a_table_and_writes_json(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    names = ("a_purge", "a_transaction", "exchange_passive")
    options = [
        *(word for name in names for word in ("--check", name)),
        "--json",
        str(path),
        *PATIENT,
    ]
    done = CliRunner().invoke(conformance, [served.url, *options])
    assert done.exit_code == 0, done.output
    assert "0-9-1/queue.purge#01  MUST NOT  holds" in done.output
    assert "0-9-1                 3      3       0        0" in done.output
    assert "0-10/s153  MUST      holds" in done.output
    assert "0-10                  1      1       0        0" in done.output
    by_version = {one["version"]: one for one in json.loads(path.read_text())}
    assert by_version["0-9-1"]["rules"]["0-9-1/tx#01"]["holds"]
    assert list(by_version["0-9"]["rules"]) == ["0-9/queue.purge#01", "0-9/queue.purge#02"]
    words = [served.url, "--version", "0-9-1", "--check", "a_purge", *PATIENT, "--json"]
    [line] = CliRunner().invoke(conformance, words).stdout.splitlines()
    assert json.loads(line)["rules"].items() <= by_version["0-9-1"]["rules"].items()


def test_a_broken_rule_is_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(one: Site) -> None:
        one.peer().expect_refusal(QueueDeclare(queue=one.queue()), 404)

    check = Check("odd", "It refuses all queues", ("0-9-1/s056", "0-9-1/s003"), run)
    monkeypatch.setitem(CHECKS, "odd", check)
    options = ["--version", "0-9-1", "--check", "odd", "--broken", *PATIENT]
    done = CliRunner().invoke(conformance, [served.url, *options])
    assert done.exit_code == 1
    text = "queue.declare-ok on channel 1 instead of an error"
    assert f"0-9-1/s003  SHOULD    broken: {text}" in done.output
    assert "0-9-1                 2      0       2        1" in done.output


def test_a_broken_rule_of_0_10_is_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_exception(one: Site) -> None:
        one.session().expect_refusal(QueueDeclare010(queue=one.queue()))

    def other_exception(one: Site) -> None:
        one.session().expect_refusal(QueueDelete010(queue=one.queue()), 406)

    def no_answer(one: Site) -> None:
        one.session().call(QueueDelete010(queue=one.queue()))

    for rule, run in (("s004", no_exception), ("s005", other_exception), ("s006", no_answer)):
        check = Check(run.__name__, f"It does {run.__name__}", (f"0-10/{rule}",), run)
        monkeypatch.setitem(CHECKS, check.name, check)
    options = ["--version", "0-10", "--broken", *PATIENT]
    for name in ("no_exception", "other_exception", "no_answer"):
        options += ["--check", name]
    done = CliRunner().invoke(conformance, [served.url, *options])
    assert done.exit_code == 1
    assert "broken: queue.declare is completed where an exception was due" in done.output
    assert "broken: queue.delete fails with (406,), not with 404" in done.output
    assert "broken: NotFound: 404" in done.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["amqp://127.0.0.1:1/"], "127.0.0.1:1"),
        (["http://127.0.0.1/"], "amqp://"),
        (["amqp://127.0.0.1:1/", "--check", "nothing"], "unknown check 'nothing'"),
    ],
)
def test_what_cannot_be_checked_is_said(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(conformance, arguments)
    assert done.exit_code not in (0, None)
    assert text in done.output


def test_what_a_check_made_is_deleted(served: Served) -> None:
    settings = settings_of(served)
    with site(settings, V0_9_1) as one:
        peer = one.peer()
        name = one.queue()
        peer.declare(name, durable=True)
    with site(settings, V0_9_1) as one:
        one.peer().expect_refusal(QueueDeclare(queue=name, passive=True), 404)


def test_what_a_check_of_0_10_made_is_deleted(served: Served) -> None:
    settings = settings_of(served)
    with site(settings, V0_10) as one:
        peer = one.session()
        never, queue = one.queue(), peer.declare(one.queue())
        alternate, exchange = peer.exchange(one.exchange()), one.exchange()
        peer.call(ExchangeDeclare(exchange=exchange, type="direct", alternate_exchange=alternate))
        assert peer.exists(queue)
    with site(settings, V0_10) as one:
        peer = one.session()
        assert not any(peer.exists(name) for name in (queue, never))
        assert all(peer.call(ExchangeQuery(name=name)).not_found for name in (alternate, exchange))
