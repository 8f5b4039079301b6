# SPDX-License-Identifier: Apache-2.0
"""What a connection tells the `on_event` of its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.errors import ClientError


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker is short of something and stopped reading what is published."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The broker reads again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection broke; unless `final`, it is being made again."""

    error: ClientError
    final: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """The connection is there again, and what it had declared; queues named by the broker have
    new names, `renamed` by old name."""

    attempts: int
    renamed: Mapping[str, str]


Event = Blocked | Unblocked | Lost | Recovered
