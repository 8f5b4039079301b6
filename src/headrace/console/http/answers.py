# SPDX-License-Identifier: Apache-2.0
"""What handlers return beside plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, Union

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aiohttp.web import StreamResponse
    from aiohttp.web_request import BaseRequest

    from headrace.untyped import Cell, JsonObject

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
    """A list of which the query chooses, orders and pages."""

    rows: Sequence[JsonObject]
    order: tuple[str, ...] = ("vhost", "name")  # Without ``sort``.


@dataclass(frozen=True, slots=True)
class Described(Generic[Item]):
    """A long list of which only the rows of a page are made.

    The items are in the order that the list has without ``sort``.
    """

    items: Sequence[Item]
    describe: Callable[[Item], JsonObject]
    name: Callable[[Item], str]
    key: Callable[[str], Callable[[Item], object]]  # Of a column: what the items are sorted by.
    mark: Callable[[Item], int]  # Another one when an item does not stand for its object any more.


AnyList = Union[Listed, "Described[Cell]"]


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that the handler sends itself, piece by piece."""

    send: Callable[[BaseRequest], Awaitable[StreamResponse]]


def created(location: str = "") -> Answer:
    """Return the answer to a PUT or POST that made an object."""
    return Answer(201, headers={"Location": location} if location else {})


def no_content() -> Answer:
    """Return the answer to a write that has nothing to say."""
    return Answer(204)


def written(*, is_new: bool) -> Answer:
    """Return the answer to a PUT."""
    return created() if is_new else no_content()
