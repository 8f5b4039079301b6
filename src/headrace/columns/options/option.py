# SPDX-License-Identifier: Apache-2.0
"""The type of an option in the table, with the uses and sources to which an option applies."""

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
STREAM_SOURCES: Final = frozenset({Source.STREAM})
QUEUE_SOURCES: Final = frozenset({Source.QUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: a row of the table.

    `excludes` names options that contradict this option, and `needs` an option that it requires. An
    error suggests `instead` where the option does not apply. `aliases` are names of the same option
    in other data sources. `default` is text for the manual only; the code that reads the option
    sets the value.
    """

    name: str
    kind: Kind
    doc: str
    default: str = ""
    uses: frozenset[Use] = EVERYWHERE
    sources: frozenset[Source] = ANY_SOURCE  # The sources of reads to which the option applies.
    excludes: tuple[str, ...] = ()
    needs: str = ""
    instead: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A titled group of options in the manual."""

    title: str
    options: tuple[Option, ...]
