# SPDX-License-Identifier: Apache-2.0
"""Node's amqplib: each scenario of amqplib_scenarios.cjs is a Node program of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.clients.client_programs import BROUGHT, bring
from support.timeouts import PATIENCE_S

HERE = Path(__file__).parent
SCRIPT = HERE / "amqplib_scenarios.cjs"
MODULE = BROUGHT / "npm" / "node_modules" / "amqplib"


@pytest.fixture(scope="module", autouse=True)
def amqplib() -> None:
    bring(MODULE)


def start(scenario: str, url: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["node", str(SCRIPT), str(MODULE), scenario, url, name, f"{PATIENCE_S:g}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(program: subprocess.Popen[str]) -> None:
    output, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, errors
    assert output.endswith("done\n")


@pytest.mark.parametrize(
    "scenario",
    [
        "confirmed_publish_and_get",
        "many_confirms",
        "nack_reject_and_ack_all",
        "returned_and_nacked",
        "exchanges_and_bindings",
        "cancelled_by_the_broker",
        "error_texts",
        "callback_interface",
    ],
)
def test_amqplib(broker, name, scenario):
    finish(start(scenario, broker.url, name))


def test_amqplib_recovers_after_a_restart(own_broker, name):
    program = start("recovery", own_broker.url, name)
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line == "restart\n", program.communicate()[1]
    own_broker.restart()
    finish(program)
