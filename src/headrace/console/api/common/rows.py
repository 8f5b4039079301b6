# SPDX-License-Identifier: Apache-2.0
"""What the handlers of several areas share."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Listed
from headrace.console.http.errors import NOT_FOUND, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.console.http.call import HttpCall
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonObject


@contextlib.contextmanager
def absent() -> Iterator[None]:
    """Answer with RabbitMQ's 404 where the broker does not find the virtual host of a list.

    Any operation that does not find its object is answered with 404; only paths of our own and
    pages have the broker's reason then, and lists there have RabbitMQ's.
    """
    try:
        yield
    except OperationRefused as error:
        if error.code == NOT_FOUND:
            raise not_found() from None
        raise


async def rows_of(
    call: HttpCall, do: str, vhost: str | None = None, **fields: object
) -> list[JsonObject]:
    """Return the rows of a list, of a virtual host or of all that the user sees.

    Raises:
        HttpError: there is no such virtual host, or the user does not see it.
    """
    with absent():
        return await call.rows(do, vhost=wanted_vhost(call, vhost), **fields)


def wanted_vhost(call: HttpCall, vhost: str | None) -> str | None:
    """Return the virtual host that a list is limited to, by name or by header; None for all."""
    return vhost or call.request.headers.get("x-vhost")


def check_vhost(call: HttpCall, vhost: str | None) -> str | None:
    """Return the virtual host that a list is limited to; None for all.

    Raises:
        HttpError: the user does not see it.
    """
    vhost = wanted_vhost(call, vhost)
    if vhost is not None and not call.identity.sees_vhost(vhost):
        raise not_found()
    return vhost


async def existing_vhost(call: HttpCall, vhost: str | None) -> str | None:
    """Return the virtual host that a list is limited to; None for all.

    Raises:
        HttpError: it does not exist, or the user does not see it.
    """
    vhost = wanted_vhost(call, vhost)
    if vhost is not None:
        await check_exists(call, vhost)
    return vhost


async def check_exists(call: HttpCall, vhost: str) -> None:
    """Refuse a virtual host that does not exist, or that the user does not see.

    Raises:
        HttpError: it is so.
    """
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    if vhost not in call.identity.vhosts:  # It may be new, or one that the user only sees.
        with absent():
            await call.ask("show vhost", vhost=vhost)


async def find_now(call: HttpCall, kind: ObjectTable, *key: object) -> SampledObject:
    """Return an object; where the sample does not have it, it may be older than the object.

    Raises:
        HttpError: there is none.
    """
    sampled = await kind.find(*key)
    if sampled is None:
        call.state.forget()
        sampled = await kind.find(*key)
    if sampled is None:
        raise not_found()
    return sampled


def only(rows: list[JsonObject], **wanted: object) -> JsonObject:
    """Return the one row with these values.

    Raises:
        HttpError: there is none.
    """
    for row in rows:
        if all(row[name] == value for name, value in wanted.items()):
            return row
    raise not_found()


async def named_rows(call: HttpCall, do: str, vhost: str | None, field: str) -> Listed:
    """Return a list whose rows are named by one of their fields."""
    return Listed([{"name": row[field], **row} for row in await rows_of(call, do, vhost)])
