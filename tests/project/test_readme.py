# SPDX-License-Identifier: Apache-2.0
"""The programs in the manual run as they stand, but for the port."""

import re
from pathlib import Path

import pytest

from headrace.testing import LocalBroker

ROOT = Path(__file__).parent.parent.parent
DEFAULT = re.compile(r"amqp://guest:guest@(127\.0\.0\.1|localhost)/")


@pytest.mark.parametrize("page", ["README.md", "docs/guides/client.md"])
def test_the_first_program_prints_what_it_published(
    page: str, headrace_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    program = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[0]
    assert len([line for line in program.splitlines() if line]) <= 16
    program, found = DEFAULT.subn(headrace_broker.url, program)
    assert found == 1
    exec(compile(program, page, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "one coffee\n"
