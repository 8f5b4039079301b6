# SPDX-License-Identifier: Apache-2.0
"""Perl's AnyEvent::RabbitMQ, which sends the header of 0-9, means 0-9-1, and is understood so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "anyevent_rabbitmq.pl"
PERL = BROUGHT / "perl" / "usr"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(PERL)
    home = tmp_path_factory.mktemp("perl")
    libraries = [PERL / "share" / "perl5", *PERL.glob("lib/*/perl5/*")]
    path = ":".join(str(library) for library in libraries)
    with Kept(home) as kept:
        yield scenarios_of(["perl", str(PROGRAM)], kept, home / "stderr", PERL5LIB=path)


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r"^    (\w+) => sub \{$"))
def test_anyevent_rabbitmq(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
