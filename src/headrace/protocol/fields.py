# SPDX-License-Identifier: Apache-2.0
"""The base class of the generated methods, commands, structs and properties.

They are slotted classes with a generated ``__init__``. Three hundred dataclasses would take most of
a broker's start time.
"""

from __future__ import annotations

from typing import ClassVar, Self


class Fields:
    """A value with named fields, equal to another of its class with equal fields."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[str, ...]] = ()  # The slots, in the order of the protocol.
    HIDDEN: ClassVar[frozenset[str]] = frozenset()  # Secret fields, which the repr leaves out.

    def __init_subclass__(cls) -> None:
        cls.FIELDS = tuple(cls.__slots__)

    __hash__ = None  # type: ignore[assignment]  # Fields are mutable.

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __repr__(self) -> str:
        shown = [name for name in self.FIELDS if name not in self.HIDDEN]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    def replaced(self, **changes: object) -> Self:
        """Return a copy with other values in some fields; TypeError names one that is unknown."""
        values = {name: getattr(self, name) for name in self.FIELDS}
        return self.__class__(**(values | changes))
