# SPDX-License-Identifier: Apache-2.0
"""Values that handlers return besides plain JSON: a status, a text, a list, a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, Union

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aiohttp.web import StreamResponse
    from aiohttp.web_request import BaseRequest

    from headrace.untyped import Cell, JsonObject, JsonRow

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with a status, headers, and a JSON value; None for no body."""

    status: int
    value: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is not JSON."""

    body: bytes
    content_type: str  # With its charset.
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """A list that the query filters, orders and pages."""

    rows: Sequence[JsonRow]
    order: tuple[str, ...] = ("vhost", "name")  # Columns of the order without ``sort``.


@dataclass(frozen=True, slots=True)
class Described(Generic[Item]):
    """A long list that makes only the rows of a page.

    The items are in the order of the list without ``sort``.
    """

    items: Sequence[Item]
    describe: Callable[[Item], JsonObject]
    name: Callable[[Item], str]
    key: Callable[[str], Callable[[Item], object]]  # Returns the sort key of a column.
    mark: Callable[[Item], int]  # Changes when an item stands for another object.


AnyList = Union[Listed, "Described[Cell]"]


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that the handler sends in pieces."""

    send: Callable[[BaseRequest], Awaitable[StreamResponse]]


def created(location: str = "") -> Answer:
    """Return the answer to a PUT or POST that created an object."""
    return Answer(201, headers={"Location": location} if location else {})


def no_content() -> Answer:
    """Return the answer to a change, without a body."""
    return Answer(204)


def written(*, is_new: bool) -> Answer:
    """Return the answer to a PUT, 201 for a new object and 204 for a present one."""
    return created() if is_new else no_content()
