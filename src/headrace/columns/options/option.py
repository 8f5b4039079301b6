# SPDX-License-Identifier: Apache-2.0
"""An option of the table, and the uses and sources that take it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.columns.options.kinds import Kind


class Use(Enum):
    """The purpose of a DataFrame; errors print the value."""

    BATCH = "batch reads"
    STREAM = "streaming reads"
    WRITE = "batch writes"
    STREAM_WRITE = "streaming writes"


class Source(Enum):
    """The source of the records of a read."""

    STREAM = "streams"
    QUEUE = "queues"


READS: Final = frozenset({Use.BATCH, Use.STREAM})
WRITES: Final = frozenset({Use.WRITE, Use.STREAM_WRITE})
EVERYWHERE: Final = READS | WRITES
STREAMING: Final = frozenset({Use.STREAM})
BATCH: Final = frozenset({Use.BATCH})
ANY_SOURCE: Final = frozenset(Source)
OF_STREAMS: Final = frozenset({Source.STREAM})
OF_QUEUES: Final = frozenset({Source.QUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: a row of the table.

    `excludes` are options that it contradicts, `needs` one that it makes no sense without;
    `instead` is what an error suggests where it does not apply. `aliases` are names that people
    know from elsewhere. `default` is shown only: who reads the option decides.
    """

    name: str
    kind: Kind
    doc: str
    default: str = ""
    uses: frozenset[Use] = EVERYWHERE
    sources: frozenset[Source] = ANY_SOURCE  # Of reads.
    excludes: tuple[str, ...] = ()
    needs: str = ""
    instead: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Options that belong together."""

    title: str
    options: tuple[Option, ...]
