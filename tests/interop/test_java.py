# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ's Java client: the scenarios of java/*.java, all in one process of a Java machine.

Where there is only a runtime and no compiler, Eclipse's compiles them; once, until they change.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, scenarios_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.brokers.broker_process import Remote, Served

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
JARS = BROUGHT / "java"
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"


def names(of: str) -> list[str]:
    """The scenarios of a class."""
    (source,) = (path for path in SOURCES if path.stem == of)
    return re.findall(r"^    public void (\w+)\(\)", source.read_text(), re.MULTILINE)


def compiled() -> Path:
    """The folder of the compiled scenarios."""
    read = [path.read_bytes() for path in SOURCES]
    classes = JARS / hashlib.sha256(b"".join(read)).hexdigest()[:16]
    if not classes.exists():
        made = classes.with_suffix(".new")
        command = ["java", "-cp", str(JARS / "ecj.jar"), COMPILER, "-11", "-proc:none"]
        command += ["-cp", str(JARS / "amqp-client.jar"), "-d", str(made), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made.rename(classes)
    return classes


@pytest.fixture(scope="module")
def ran(
    broker: Served | Remote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(JARS / "ecj.jar")
    home = tmp_path_factory.mktemp("java")
    path = f"{compiled()}:{JARS}/amqp-client.jar:{JARS}/slf4j-api.jar"
    with Kept(home) as kept:
        told = {
            "url": broker.url,
            "kept": kept.served.url,
            "tls": kept.tls,
            "authority": kept.authority.ca,
            "certificate": kept.bundle,
        }
        command = ["java", *(f"-D{name}={value}" for name, value in told.items())]
        command += ["-cp", path, "Main", "Basics", "Extensions", "Logins", "Operators", "Recovery"]
        yield scenarios_of(command, kept, home / "stderr")


@pytest.mark.parametrize("scenario", names("Basics"))
def test_basics(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)


@pytest.mark.parametrize("scenario", names("Extensions"))
def test_extensions(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)


@pytest.mark.parametrize("scenario", names("Logins"))
def test_logins(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)


@pytest.mark.parametrize("scenario", names("Operators"))
def test_operators(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)


@pytest.mark.parametrize("scenario", names("Recovery"))
def test_recovery(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
