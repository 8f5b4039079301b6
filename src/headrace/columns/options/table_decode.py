# SPDX-License-Identifier: Apache-2.0
"""The options that say what is in a body: rows of the table of options."""

from __future__ import annotations

from typing import Final

from headrace.columns.options import kinds
from headrace.columns.options.option import READS, WRITES, Option, Section

SAMPLE_MAX: Final = 100_000  # Records to infer a schema from.


def _mark(text: str) -> str | None:
    return text if len(text) == 1 and text.isascii() and text not in "\r\n" else None


MARK: Final = kinds.Kind("one ASCII character", _mark)

DECODING: Final = Section(
    "What is in a body",
    (
        Option(
            name="value",
            kind=kinds.choice(
                "json", "csv", "avro", "protobuf", "cbor", "msgpack", "string", "binary"
            ),
            doc="decode bodies into a column `value`, see [Decoding](../guides/spark-decode.md). "
            "For writing only `avro`: "
            "[the column `value` is encoded](../guides/spark-sink.md#bodies-of-avro)",
            default="bodies are not decoded, and not encoded",
        ),
        Option(
            name="decompress",
            kind=kinds.BOOLEAN,
            doc="whether bodies are decompressed before they are decoded, where their "
            "`content_encoding` is `gzip`, `deflate`, `zstd` or `lz4`",
            default="`true`; for `binary` `false`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="decompressedBytesMax",
            kind=kinds.SIZE,
            doc="the size of a decompressed body; one that is larger is bad",
            default="`16m`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="valueSchema",
            kind=kinds.TEXT,
            doc="what bodies are: `id BIGINT, price DECIMAL(10, 2)` or another type as Spark "
            "writes it, or for Avro the writer's schema in JSON",
            default="of JSON and CSV inferred, of Avro required",
            needs="value",
        ),
        Option(
            name="protobufDescriptors",
            kind=kinds.TEXT,
            doc="a file on the driver with a `FileDescriptorSet`, as `protoc --include_imports "
            "--descriptor_set_out` writes it",
            default="required for `protobuf`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="protobufMessage",
            kind=kinds.TEXT,
            doc="the full name of the message in it: `shop.Order`",
            default="required for `protobuf`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="protobufFraming",
            kind=kinds.choice("none", "registry"),
            doc="what stands before the message: nothing, or what clients of a schema registry "
            "write: a zero, an id in four bytes, and the place of the message in its file",
            default="`none`",
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
            "writer's schema is found in `schemaLocation`; or a zero and the id of the writer's "
            "schema in a registry, in five bytes, which are skipped without `schemaRegistry`",
            default="`none`",
            needs="value",
        ),
        Option(
            name="jsonFraming",
            kind=kinds.choice("none", "registry"),
            doc="what stands before the JSON: nothing, or a zero and the id of a schema in a "
            "registry, in five bytes, which are skipped",
            default="`none`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="schemaRegistry",
            kind=kinds.HTTP_URL,
            doc="the registry of the writers' schemas, with Confluent's API: "
            "`https://registry:8081`, of Apicurio `https://host/apis/ccompat/v7`",
            default="every body has the schema `valueSchema`",
            needs="avroFraming",
        ),
        Option(
            name="schemaSubject",
            kind=kinds.TEXT,
            doc="the subject in the registry for the schema of what is written: `orders-value`",
            default="required with `schemaRegistry`",
            uses=WRITES,
            needs="schemaRegistry",
        ),
        Option(
            name="schemaRegister",
            kind=kinds.BOOLEAN,
            doc="whether a schema that the subject does not have is registered",
            default="`true`",
            uses=WRITES,
            needs="schemaRegistry",
        ),
        Option(
            name="schemaRegistryUser",
            kind=kinds.TEXT,
            doc="the user of the registry",
            default="no login; with a password only, that is a bearer token",
            needs="schemaRegistry",
        ),
        Option(
            name="schemaRegistryPassword",
            kind=kinds.SECRET,
            doc="the user's password, or a bearer token",
            needs="schemaRegistry",
        ),
        Option(
            name="schemaRegistryPasswordFile",
            kind=kinds.TEXT,
            doc="a file on the driver that holds it",
            needs="schemaRegistry",
            excludes=("schemaRegistryPasswordEnv",),
        ),
        Option(
            name="schemaRegistryPasswordEnv",
            kind=kinds.TEXT,
            doc="an environment variable of the driver that does",
            needs="schemaRegistry",
        ),
    ),
)
