# SPDX-License-Identifier: Apache-2.0
"""The options that say what is in a body: rows of the table of options."""

from __future__ import annotations

from typing import Final

from headrace.spark.options import kinds
from headrace.spark.options.option import READS, Option, Section

SAMPLE_MAX: Final = 100_000  # Records to infer a schema from.


def _mark(text: str) -> str | None:
    return text if len(text) == 1 and text.isascii() and text not in "\r\n" else None


MARK: Final = kinds.Kind("one ASCII character", _mark)

DECODING: Final = Section(
    "What is in a body",
    (
        Option(
            name="value",
            kind=kinds.choice("json", "csv", "avro", "string", "binary"),
            doc="decode bodies into a column `value`; [Decoding](../guides/spark-decode.md) "
            "tells how",
            default="bodies are not decoded",
            uses=READS,
        ),
        Option(
            name="valueSchema",
            kind=kinds.TEXT,
            doc="what bodies are: `id BIGINT, price DECIMAL(10, 2)` or another type as Spark "
            "writes it, or for Avro the writer's schema in JSON",
            default="of JSON and CSV inferred, of Avro required",
            uses=READS,
            needs="value",
        ),
        Option(
            name="schemaLocation",
            kind=kinds.TEXT,
            doc="a directory for the versions of the schema, beside the checkpoint, which the "
            "driver and all executors share",
            default="required when a streaming read infers its schema",
            uses=READS,
            needs="value",
        ),
        Option(
            name="schemaEvolutionMode",
            kind=kinds.choice("none", "rescue", "addNewColumns", "failOnNewColumns", "fail"),
            doc="what becomes of columns that the schema does not have, and of values that do not "
            "fit their type",
            default="`none`; of an inferred schema `addNewColumns` with `schemaLocation`, "
            "otherwise `rescue`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="schemaSample",
            kind=kinds.whole(1, SAMPLE_MAX),
            doc="from how many records a schema is inferred: of streams the oldest and the newest, "
            "of a queue the first",
            default="1000",
            uses=READS,
            needs="value",
        ),
        Option(
            name="mode",
            kind=kinds.choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST", "DEADLETTER"),
            doc="what becomes of a body that cannot be decoded: a row with its octets and the "
            "reason, nothing, the end of the query, or a message to `deadLetterExchange`, or a "
            "dead letter of the queue",
            default="`PERMISSIVE`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="rescuedDataColumn",
            kind=kinds.STATED_NAME,
            doc="the name of the column for what found no place in `value`; given, it makes "
            "`schemaEvolutionMode` `rescue` unless that is given too",
            default="`_rescued_data`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="deadLetterExchange",
            kind=kinds.NAME,
            doc='where `DEADLETTER` publishes; `""` is the default exchange',
            default="of a streaming read of a queue by leases: dead letters of the queue itself; "
            "else required for `DEADLETTER`",
            uses=READS,
            needs="mode",
        ),
        Option(
            name="deadLetterRoutingKey",
            kind=kinds.NAME,
            doc="with which routing key",
            default="that of the message",
            uses=READS,
            needs="deadLetterExchange",
        ),
        Option(
            name="timeZone",
            kind=kinds.TEXT,
            doc="the zone of times in bodies that name none: `Europe/Berlin`, `+02:00`",
            default="`UTC`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="csvSeparator",
            kind=MARK,
            doc="what is between the columns of CSV",
            default="`,`",
            uses=READS,
            needs="value",
            aliases=("sep", "delimiter"),
        ),
        Option(
            name="csvQuote",
            kind=MARK,
            doc="what is around a text of CSV that has separators; twice in it stands for itself",
            default='`"`',
            uses=READS,
            needs="value",
            aliases=("quote",),
        ),
        Option(
            name="csvEscape",
            kind=MARK,
            doc="what is before a quote of CSV that stands for itself",
            default="none",
            uses=READS,
            needs="value",
            aliases=("escape",),
        ),
        Option(
            name="csvNull",
            kind=kinds.ANY_TEXT,
            doc="the text of CSV that is null",
            default="the empty one",
            uses=READS,
            needs="value",
            aliases=("nullValue",),
        ),
        Option(
            name="avroFraming",
            kind=kinds.choice("none", "single-object", "registry"),
            doc="what stands before the datum: nothing; marker and fingerprint, by which the "
            "writer's schema is found in `schemaLocation`; or five octets, which are skipped",
            default="`none`",
            uses=READS,
            needs="value",
        ),
    ),
)
