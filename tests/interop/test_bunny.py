# SPDX-License-Identifier: Apache-2.0
"""Ruby's bunny, with the Ruby that Debian has for it: the scenarios of bunny_scenarios.rb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of, the_only

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "bunny_scenarios.rb"
RUBY = BROUGHT / "ruby" / "usr"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(RUBY)
    home = tmp_path_factory.mktemp("bunny")
    program = the_only(RUBY / "bin", "ruby[0-9]*")
    version = f"{program.name.removeprefix('ruby')}.0"
    library = RUBY / "lib" / "ruby"
    (native,) = (RUBY / "lib").glob("*/ruby")
    gems = (RUBY / "share" / "rubygems-integration" / "all" / "gems").glob("*/lib")
    paths = [library / "vendor_ruby", library / version, native / version, *gems]
    environment = {
        "LD_LIBRARY_PATH": str(native.parent),
        "RUBYLIB": ":".join(str(path) for path in paths),
    }
    command = [str(program), "--disable-gems", str(PROGRAM)]
    with Kept(home) as kept:
        yield scenarios_of(command, kept, home / "stderr", **environment)


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r"^  def (\w+)\("))
def test_bunny(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
