# SPDX-License-Identifier: Apache-2.0
"""php-amqplib, which is all PHP: the scenarios of php/amqplib.php, and some in AMQP 0-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import php_scenarios, run_php

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.brokers.broker_process import Remote, Served

LATEST = "amqplib.php"
EARLY = "amqplib_0_8.php"


@pytest.fixture(scope="module")
def ran(
    broker: Served | Remote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    yield from run_php((LATEST, EARLY), broker, tmp_path_factory.mktemp("php-amqplib"))


@pytest.mark.parametrize("scenario", php_scenarios(LATEST))
def test_php_amqplib(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)


@pytest.mark.parametrize("scenario", php_scenarios(EARLY))
def test_php_amqplib_in_0_8(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
