# SPDX-License-Identifier: Apache-2.0
"""Values that handlers return besides plain JSON: a status, a text, a list, a stream."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Self, TypeVar, Union

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
class RowList:
    """A list that the query filters, orders and pages."""

    rows: Sequence[JsonRow]
    order: tuple[str, ...] = ("vhost", "name")  # Columns of the order without ``sort``.


class LazyList(ABC, Generic[Item]):
    """A long list, which makes rows only of the items of the page that a query selects.

    The items are in the order of the list without ``sort``. Subclasses make the rows.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items

    def with_items(self, items: Sequence[Item]) -> Self:
        """Return the list with some of its items only."""
        selection = copy.copy(self)
        selection.items = items
        return selection

    @abstractmethod
    def row(self, item: Item) -> JsonObject:
        """Return the row of an item."""

    @abstractmethod
    def name(self, item: Item) -> str:
        """Return the name of an item, which the filter by name tests; it makes no row."""

    @abstractmethod
    def sort_key(self, column: str) -> Callable[[Item], object]:
        """Return the function that returns the sort key of an item for a column.

        It makes no rows. A missing field has the key 0.
        """

    @abstractmethod
    def version(self, item: Item) -> int:
        """Return a number that changes when an item stands for another object.

        While a long answer is sent, the object of an item may end and another one take its place.
        """


AnyList = Union[RowList, "LazyList[Cell]"]


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer that the handler sends in pieces."""

    send: Callable[[BaseRequest], Awaitable[StreamResponse]]


def created(location: str = "") -> Answer:
    """Return the answer to a PUT or POST that created an object."""
    return Answer(201, headers={"Location": location} if location else {})


def no_content() -> Answer:
    """Return the answer to a change, without a body."""
    return Answer(204)


def created_or_no_content(*, is_new: bool) -> Answer:
    """Return the answer to a PUT, 201 for a new object and 204 for a present one."""
    return created() if is_new else no_content()
