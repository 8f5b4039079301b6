# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ's client for .NET of AMQP 0-8 and 0-9, as Mono ships it: RabbitMQClient.cs in Mono."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "RabbitMQClient.cs"
MONO = BROUGHT / "mono"
RUNTIME = MONO / "usr" / "bin" / "mono-sgen"
LIBRARIES = MONO / "usr" / "lib" / "mono" / "4.5"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario, by version."""
    bring(RUNTIME)
    home = tmp_path_factory.mktemp("mono")
    compiled = str(home / "scenarios.exe")
    environment = {"MONO_PATH": str(LIBRARIES), "MONO_CFG_DIR": str(MONO / "etc")}
    client = f"-r:{LIBRARIES / 'RabbitMQ.Client.dll'}"
    command = [str(RUNTIME), str(LIBRARIES / "mcs.exe"), client, f"-out:{compiled}", str(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with Kept(home) as kept:
        yield scenarios_of([str(RUNTIME), compiled], kept, home / "stderr", **environment)


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r"^  public void (\w+)\(\)"))
@pytest.mark.parametrize("version", ["0-8", "0-9"])
def test_dotnet(ran: dict[str, str | None], version: str, scenario: str) -> None:
    failure = ran.get(f"{version} {scenario}", "it does not end")
    assert failure is None, failure
