# SPDX-License-Identifier: Apache-2.0
"""Numbers in fields of forms: whole numbers of up to 18 characters; 400 for other texts."""

from __future__ import annotations

import pytest

from headrace.console.http.forms import Form
from headrace.console.http_errors import HttpError
from headrace.console.pages.actions import Field

FIELD = Field("value", "Value", kind="number")


@pytest.mark.parametrize("text", ["0", "7", "-7", " 12 ", "9" * 18])
def test_a_whole_number_is_read(text: str) -> None:
    assert FIELD.read(Form([("value", text)], {})) == int(text)


@pytest.mark.parametrize("text", ["--5", "---", "-", "5-", "1.5", "1e3", "+5", "²", "9" * 19])
def test_other_texts_are_refused_with_400(text: str) -> None:
    with pytest.raises(HttpError, match="Value is not a whole number") as refused:
        FIELD.read(Form([("value", text)], {}))
    assert refused.value.status == 400
