# SPDX-License-Identifier: Apache-2.0
"""Ruby's bunny, with the Ruby that Debian has for it: the scenarios of bunny_scenarios.rb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "bunny_scenarios.rb"
RUBY = BROUGHT / "ruby" / "usr"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(RUBY / "bin" / "ruby3.1")
    home = tmp_path_factory.mktemp("bunny")
    library = RUBY / "lib" / "ruby"
    (native,) = (RUBY / "lib").glob("*/ruby")
    gems = (RUBY / "share" / "rubygems-integration" / "all" / "gems").glob("*/lib")
    paths = [library / "vendor_ruby", library / "3.1.0", native / "3.1.0", *gems]
    environment = {
        "LD_LIBRARY_PATH": str(native.parent),
        "RUBYLIB": ":".join(str(path) for path in paths),
    }
    command = [str(RUBY / "bin" / "ruby3.1"), "--disable-gems", str(PROGRAM)]
    with Kept(home) as kept:
        yield scenarios_of(command, kept, home / "stderr", **environment)


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r"^  def (\w+)\("))
def test_bunny(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
