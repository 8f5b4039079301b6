# SPDX-License-Identifier: Apache-2.0
"""Where the JSON of commands goes that measure or check something."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.cli.output import STDOUT, write_json

if TYPE_CHECKING:
    from pathlib import Path

Read = pytest.CaptureFixture[str]


@pytest.mark.parametrize("found", [[{"a": 1}, {"a": "ü"}], {"a": 1}])
def test_printed_json_is_an_object_a_line_and_all_there_is(found: Any, capsys: Read) -> None:
    assert write_json(STDOUT, found)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == (found if isinstance(found, list) else [found])
    assert not STDOUT.exists()


def test_json_in_a_file_comes_with_the_table(tmp_path: Path, capsys: Read) -> None:
    assert not write_json(tmp_path / "found.json", [{"a": 1}])
    assert json.loads((tmp_path / "found.json").read_text()) == [{"a": 1}]
    assert not write_json(None, [{"a": 1}])
    assert capsys.readouterr().out == ""
