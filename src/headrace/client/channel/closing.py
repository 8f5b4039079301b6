# SPDX-License-Identifier: Apache-2.0
"""Base classes of context managers that call `close` at the end of the block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """An object that `with` closes at the end of the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release its resources at the broker."""


class AsyncClosing(ABC):
    """An object that `async with` closes at the end of the block."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Release its resources at the broker."""
