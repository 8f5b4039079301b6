# SPDX-License-Identifier: Apache-2.0
"""What strangers send is parsed in a time that grows no faster than its length."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

from headrace.console.auth import basic_bearer as authentication
from headrace.console.auth.addresses import local_path
from headrace.console.http import name_filter, paging
from headrace.console.http.answers import RowList
from headrace.console.http.forms import FormError, parse_form
from headrace.console.http.request_body import parse_json
from headrace.console.http_errors import HttpError
from support.growth import DOUBLED_MAX, growth_of

if TYPE_CHECKING:
    from collections.abc import Callable

MULTIPART = "multipart/form-data; boundary=M"
#: What attacks are made of: separators, quotes and escapes, and what never ends.
UNITS = ("; ", ";a=", ';a="', ';a="\\"', "=", '"', "\\", " ", "a", "%", "&", "--M\r\n", "\r\n", "[")


def part(unit: str) -> Callable[[int], bytes]:
    """A form with a part whose header is of these units."""
    return lambda size: (
        b'--M\r\nContent-Disposition: form-data; name="file"'
        + (unit * size).encode()
        + b"\r\n\r\nx\r\n--M--\r\n"
    )


def form(raw: bytes, kind: str = MULTIPART) -> None:
    try:
        parse_form(raw, kind)
    except FormError:
        pass


def credentials(text: str) -> None:
    authentication.parse_credentials(text)


def json_of(text: str) -> None:
    try:
        parse_json(text.encode())
    except HttpError:
        pass


PARSERS: dict[str, tuple[Callable[[str], Callable[[int], Any]], Callable[[Any], object]]] = {
    "a part's header": (part, form),
    "parts": (lambda unit: lambda size: (unit * size).encode(), form),
    "a form's content type": (
        lambda unit: lambda size: f"multipart/form-data{unit * size}",
        lambda kind: form(b"", kind),
    ),
    "a form": (
        lambda unit: lambda size: (unit * size).encode(),
        lambda raw: form(raw, "application/x-www-form-urlencoded"),
    ),
    "credentials": (lambda unit: lambda size: f"Basic {unit * size}", credentials),
    "a scheme": (lambda unit: lambda size: unit * size, credentials),
    "JSON": (lambda unit: lambda size: unit * size, json_of),
    "an address to go on with": (lambda unit: lambda size: "/" + unit * size, local_path),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", PARSERS)
def test_what_is_read_before_a_login_takes_time_by_its_length(name: str, unit: str) -> None:
    make, read = PARSERS[name]
    assert growth_of(make(unit), read) <= DOUBLED_MAX


@pytest.mark.parametrize(
    ("head", "name", "is_file"),
    [
        ('form-data; name="a"', "a", False),
        ('form-data; name="a"; filename="b.json"', "a", True),
        ("form-data; name=a; filename*=UTF-8''b", "a", True),
        (r'form-data; name="a\"b\\c"; filename=""', r'a"b\c', True),
        ('form-data;name = "a;b=c" ;x=y', "a;b=c", False),
        ('form-data; Name="a"; name="b"', "a", False),
    ],
)
def test_parameters_of_a_part_are_read(head: str, name: str, is_file: bool) -> None:
    raw = f"--M\r\ncontent-disposition: {head}\r\n\r\nx\r\n--M--\r\n".encode()
    form = parse_form(raw, 'multipart/form-data; charset=utf-8; boundary="M"')
    assert (list(form.files), [field for field, _ in form.fields]) == (
        ([name], []) if is_file else ([], [name])
    )


NAMES = [f"{'a' * 240}{at}" for at in range(200)]
#: Patterns that take RE2 long, some with captures.
PATTERNS = ("(a?)" * 250, "(a|b|ab)*c" * 90, "((((a*)*)*)*)*$" * 60, "(?:a?){200}a{200}x")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_search_by_a_pattern_lets_others_have_their_turns(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a step is that of the clock, whatever the pattern is."""
    steps: list[float] = []
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += name_filter.SLICE_S / 4  # For each name.
        return now_s

    async def search() -> object:
        async def others() -> None:
            while True:
                steps.append(now_s)
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        rows = [{"name": name} for name in NAMES]
        query = {"name": pattern, "use_regex": "true"}
        listed, fits = await name_filter.apply_search(RowList(rows, ()), query)
        task.cancel()
        return paging.page_of_list(listed, query, fits)

    monkeypatch.setattr(time, "monotonic", clock)
    found = asyncio.run(search())
    assert isinstance(found, list)
    assert len(steps) >= len(NAMES) / 5
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 2 * name_filter.SLICE_S
