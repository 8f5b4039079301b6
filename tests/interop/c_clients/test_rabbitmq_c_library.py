# SPDX-License-Identifier: Apache-2.0
"""rabbitmq-c as a library: the scenarios of rabbitmq_c_scenarios.c, a program of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "rabbitmq_c_scenarios.c"
LIBRARY = BROUGHT / "rabbitmq-c" / "usr"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(LIBRARY / "include" / "amqp.h")
    home = tmp_path_factory.mktemp("rabbitmq")
    program = home / "scenarios"
    (shared,) = (LIBRARY / "lib").glob("*/librabbitmq.so.4")
    flags = ["-std=c11", "-Wall", "-Wextra", "-O1", f"-I{LIBRARY / 'include'}"]
    source = str(PROGRAM)
    command = ["cc", *flags, "-o", str(program), source, str(shared)]
    subprocess.run(command, check=True)
    path = {"LD_LIBRARY_PATH": str(shared.parent)}
    with Kept(home) as kept:
        yield scenarios_of([str(program)], kept, home / "stderr", **path)


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r'^    \{"(\w+)",'))
def test_rabbitmq_c(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
