# SPDX-License-Identifier: Apache-2.0
"""Events of a connection, for the `on_event` of its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.errors import ClientError


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker stopped reading publishes, because disk space or memory is low."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The broker reads again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection was lost; unless `final`, the client reconnects."""

    error: ClientError
    final: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """The client has reconnected and restored its declarations and consumers.

    `renamed` has the new names of queues that the broker named, by old name.
    """

    attempts: int
    renamed: Mapping[str, str]


Event = Blocked | Unblocked | Lost | Recovered
