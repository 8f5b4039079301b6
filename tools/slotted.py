# SPDX-License-Identifier: Apache-2.0
"""The members of a generated class: slots, and an `__init__` with keyword arguments."""

from __future__ import annotations

from typing import NamedTuple


class Member(NamedTuple):
    """A field of a generated class. With a `factory` each object gets a new default value."""

    name: str
    type: str
    default: str
    factory: bool = False
    hidden: bool = False


def class_lines(members: list[Member]) -> list[str]:
    """Return the lines of the class body after its constants."""
    names = ", ".join(f'"{member.name}"' for member in members)
    lines = [f"    __slots__ = ({names},)" if members else "    __slots__ = ()"]
    if not members:
        return lines
    hidden = ", ".join(f'"{member.name}"' for member in members if member.hidden)
    if hidden:
        lines += [f"    HIDDEN: ClassVar[frozenset[str]] = frozenset(({hidden},))"]
    lines += ["", "    def __init__(", "        self,", "        *,"]
    for member in members:
        if member.factory:
            lines += [f"        {member.name}: {member.type} | None = None,"]
        else:
            lines += [f"        {member.name}: {member.type} = {member.default},"]
    lines += ["    ) -> None:"]
    for member in members:
        value = member.name
        if member.factory:
            value = f"{member.default} if {member.name} is None else {member.name}"
            lines += [f"        self.{member.name}: {member.type} = {value}"]
        else:
            lines += [f"        self.{member.name} = {value}"]
    return lines
