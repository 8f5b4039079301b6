# SPDX-License-Identifier: Apache-2.0
"""The form in which a page shows a payload."""

from __future__ import annotations

import pytest

from headrace.console.pages.messages.payload_forms import JSON, TEXT, format_as


@pytest.mark.parametrize(
    "body", ['{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}}', "[1e400]", "[NaN]", "[" * 100_000]
)
def test_a_body_that_readers_differ_on_is_shown_as_its_text(body: str) -> None:
    assert format_as(body.encode(), JSON, is_cut=False) is None
    assert format_as(body.encode(), TEXT, is_cut=False) == body


def test_json_is_shown_with_indents() -> None:
    assert format_as(b'{"a":[1]}', JSON, is_cut=False) == '{\n  "a": [\n    1\n  ]\n}'
