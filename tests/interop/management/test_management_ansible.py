# SPDX-License-Identifier: Apache-2.0
"""Ansible's modules for RabbitMQ that use its HTTP API, as Debian has them.

A second run of a playbook changes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, RUN_S, bring

if TYPE_CHECKING:
    from support.console import LocalConsole

PACKAGES = BROUGHT / "ansible" / "usr" / "lib" / "python3" / "dist-packages"
PLAYBOOK = Path(__file__).with_name("rabbitmq.yml")
COMMAND = "from ansible.cli.playbook import main; main()"
TASKS = ("exchanges", "queues", "bindings", "queues are deleted", "exchanges are deleted")


@pytest.fixture(scope="module", autouse=True)
def vhost(console: LocalConsole) -> None:
    """The virtual host of the playbook, in which guest may do all."""
    assert console.ask("PUT", "/api/vhosts/a%2Fb").status == 201


def play(console: LocalConsole, home: Path, state: str, *words: str) -> dict[str, bool]:
    """Run the playbook; return the tasks that ran, each with whether it changed something."""
    bring(PACKAGES)
    told = {"port": str(console.port), "state": state, "ansible_connection": "local"}
    told["ansible_python_interpreter"] = sys.executable
    given = ["-i", "localhost,", "-e", json.dumps(told), *words, str(PLAYBOOK)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *given],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={
            **os.environ,
            "PYTHONPATH": str(PACKAGES),
            "ANSIBLE_HOME": str(home),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_LOCAL_TEMP": str(home),
            "ANSIBLE_COLLECTIONS_PATH": str(PACKAGES),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads(done.stdout)["plays"]
    results = {task["task"]["name"]: task["hosts"]["localhost"] for task in run["tasks"]}
    return {name: one["changed"] for name, one in results.items() if not one.get("skipped", False)}


@pytest.mark.slow
def test_a_second_run_changes_nothing(console: LocalConsole, tmp_path: Path) -> None:
    made = dict.fromkeys(TASKS[:3], True)
    assert play(console, tmp_path, "present") == made
    assert play(console, tmp_path, "present") == dict.fromkeys(made, False)
    keys = [row["routing_key"] for row in console.get("/api/bindings/a%2Fb") if row["source"]]
    assert sorted(keys) == ["", "a b+c%", "eu.#"]
    queue = console.get("/api/queues/a%2Fb/of%2Fansible")
    assert queue["arguments"] == {
        "x-dead-letter-exchange": "",
        "x-message-ttl": 60000,
        "x-max-priority": 5,
    }
    gone = dict.fromkeys(TASKS[2:], True)
    assert play(console, tmp_path, "absent", "--check") == gone
    assert len(console.get("/api/queues/a%2Fb")) == 1
    assert play(console, tmp_path, "absent") == gone
    assert console.get("/api/queues/a%2Fb") == []
