# SPDX-License-Identifier: Apache-2.0
"""PHP's extension amqp, which is rabbitmq-c behind objects: the scenarios of php/amqp.php."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import php_scenarios, run_php

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.brokers.broker_process import Remote, Served


@pytest.fixture(scope="module")
def ran(
    broker: Served | Remote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    yield from run_php(("amqp.php",), broker, tmp_path_factory.mktemp("php-amqp"))


@pytest.mark.parametrize("scenario", php_scenarios("amqp.php"))
def test_php_amqp(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
