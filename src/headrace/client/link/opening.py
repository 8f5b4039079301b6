# SPDX-License-Identifier: Apache-2.0
"""The results of `connect` and `connection.channel`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Generic, Protocol, TypeVar


class _Closable(Protocol):
    async def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


class Opening(Generic[Opened]):
    """The opening of a connection or channel: `await` it, or use `async with`, which closes it."""

    def __init__(self, open_resource: Callable[[], Coroutine[object, None, Opened]]) -> None:
        self._open_resource = open_resource
        self._opened: Opened | None = None

    def __await__(self) -> Generator[object, None, Opened]:
        return self._open_resource().__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._open_resource()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        if self._opened is not None:
            await self._opened.close()
