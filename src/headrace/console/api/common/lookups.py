# SPDX-License-Identifier: Apache-2.0
"""Finding virtual hosts, objects and rows, and the 404 without them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import RowList
from headrace.console.http_errors import NOT_FOUND, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.console.broker.lists import ListOperation, Row
    from headrace.console.http.call import HttpCall
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonRow

AnyRow = TypeVar("AnyRow", bound="JsonRow")


@contextlib.contextmanager
def translate_not_found() -> Iterator[None]:
    """Answer with RabbitMQ's 404 if the broker does not find the virtual host of a list.

    Lists of our own paths and of pages have RabbitMQ's text for an unknown virtual host, and the
    broker's text in all other answers 404.
    """
    try:
        yield
    except OperationRefused as error:
        if error.code == NOT_FOUND:
            raise not_found() from None
        raise


async def read_rows(
    call: HttpCall, listing: ListOperation[Row], vhost: str | None = None, **fields: object
) -> list[Row]:
    """Return the rows of a list, of a virtual host or of all that the user sees.

    Raises:
        HttpError: the virtual host does not exist, or the user does not see it.
    """
    with translate_not_found():
        return await call.broker.rows(listing, vhost=vhost_filter(call, vhost), **fields)


def vhost_filter(call: HttpCall, vhost: str | None) -> str | None:
    """Return the virtual host that limits a list, from the path or a header; None for all."""
    return vhost or call.request.headers.get("x-vhost")


def visible_vhost(call: HttpCall, vhost: str | None) -> str | None:
    """Return the virtual host that limits a list; None for all.

    Raises:
        HttpError: the user does not see the virtual host.
    """
    vhost = vhost_filter(call, vhost)
    if vhost is not None and not call.identity.sees_vhost(vhost):
        raise not_found()
    return vhost


async def existing_vhost(call: HttpCall, vhost: str | None) -> str | None:
    """Return the virtual host that limits a list; None for all.

    Raises:
        HttpError: the virtual host does not exist, or the user does not see it.
    """
    vhost = vhost_filter(call, vhost)
    if vhost is not None:
        await check_vhost_exists(call, vhost)
    return vhost


async def check_vhost_exists(call: HttpCall, vhost: str) -> None:
    """Refuse an unknown virtual host.

    Raises:
        HttpError: the virtual host does not exist, or the user does not see it.
    """
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    if vhost not in call.identity.vhosts:  # It may be new, or visible without permissions.
        with translate_not_found():
            await call.broker.ask("show vhost", vhost=vhost)


async def find_sampled(call: HttpCall, objects: ObjectTable, *key: object) -> SampledObject:
    """Return an object; if the last sample lacks it, take a new sample first.

    Raises:
        HttpError: the object does not exist.
    """
    sampled = await objects.find(*key)
    if sampled is None:
        call.state.invalidate()
        sampled = await objects.find(*key)
    if sampled is None:
        raise not_found()
    return sampled


def find_row(rows: list[AnyRow], **values: object) -> AnyRow:
    """Return the row with some values.

    Raises:
        HttpError: no row has them.
    """
    for row in rows:
        if all(row[name] == value for name, value in values.items()):
            return row
    raise not_found()


async def read_named_rows(
    call: HttpCall, listing: ListOperation[AnyRow], vhost: str | None, field: str
) -> RowList:
    """Return a list whose rows get their name from a field."""
    return RowList([{"name": row[field], **row} for row in await read_rows(call, listing, vhost)])


async def row_in_path(call: HttpCall, listing: ListOperation[AnyRow]) -> AnyRow | None:
    """Return the row of a list with the values of the path's parameters; None without one."""
    for row in await read_rows(call, listing, call.path["vhost"]):
        if all(row.get(name, value) == value for name, value in call.path.items()):
            return row
    return None
