# SPDX-License-Identifier: Apache-2.0
"""Go's amqp091-go: the scenarios of amqp091_scenarios.go, and the tests that it comes with."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Served
from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of, the_only
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "amqp091_scenarios.go"
GO = BROUGHT / "go" / "usr"
ITS_OWN = GO / "bin" / "amqp091.test"
MODULE = GO / "share" / "gocode" / "src" / "github.com" / "rabbitmq" / "amqp091-go"
TESTS = ("integration_test.go", "connection_test.go")  # Of its own, those that ask a broker.
LEFT_OUT = {
    # They want of RabbitMQ that it cannot do what Headrace does.
    "TestIntegrationConsumeFlow",
    "TestIntegrationRecoverNotImplemented",
    # It changes a setting by rabbitmqctl, and skips itself where there is none.
    "TestConnection_Close_WhenMemoryAlarmIsActive",
    # In Debian 13 it waits 100 s, whatever the broker does.
    "TestIntegrationConsumeCancelWithContext",
}
FEWEST = 60


def built(program: Path) -> list[str]:
    """The command that runs our program."""
    root = the_only(GO / "lib", "go-*")
    environment = {
        "GOROOT": str(root),
        "GOPATH": str(GO / "share" / "gocode"),
        "GOCACHE": str(GO / "cache"),
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
    }
    command = [str(root / "bin" / "go"), "build", "-o", str(program), str(PROGRAM)]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    return [str(program)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(GO)
    home = tmp_path_factory.mktemp("amqp091")
    command = built(home / "scenarios")
    with Kept(home) as kept:
        yield scenarios_of(command, kept, home / "stderr")


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r'\{"(\w+)", \w+\},'))
def test_amqp091_go(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)


def test_its_own_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    bring(ITS_OWN)
    home = tmp_path_factory.mktemp("amqp091")
    named = ("--product", "RabbitMQ", "--product-version", "3.13.0")  # Two of them ask.
    served = Served(home, *named, memory=True).start()
    written = "".join([(MODULE / name).read_text() for name in TESTS])
    asked = sorted(set(re.findall(r"^func (Test\w+)\(t ", written, re.MULTILINE)) - LEFT_OUT)
    assert len(asked) >= FEWEST
    done = subprocess.run(
        [str(ITS_OWN), "-test.v", f"-test.run=^({'|'.join(asked)})$"],
        env={**os.environ, "AMQP_URL": served.url.removesuffix("%2F")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=MODULE,
    )
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"^--- PASS: (\w+)", done.stdout, re.MULTILINE)) == asked, done.stdout
    served.end()
