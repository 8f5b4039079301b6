# SPDX-License-Identifier: Apache-2.0
"""The section of the table with the options for decoding bodies."""

from __future__ import annotations

from typing import Final

from headrace.columns.options import kinds
from headrace.columns.options.option import READS, WRITES, Option, Section

SAMPLE_MAX: Final = 100_000  # Records from which a schema is inferred.


def _parse_character(text: str) -> str | None:
    return text if len(text) == 1 and text.isascii() and text not in "\r\n" else None


CHARACTER: Final = kinds.Kind("one ASCII character", _parse_character)

DECODING: Final = Section(
    "What is in a body",
    (
        Option(
            name="value",
            kind=kinds.choice(
                "json", "csv", "avro", "protobuf", "cbor", "msgpack", "string", "binary"
            ),
            doc="decode bodies into a column `value`; see "
            "[Decoding](../guides/spark-decode.md). For writing, only `avro`: [the column"
            " `value` is encoded](../guides/spark-sink.md#bodies-of-avro)",
            default="bodies are not decoded, and not encoded",
        ),
        Option(
            name="decompress",
            kind=kinds.BOOLEAN,
            doc="decompress bodies before decoding if their `content_encoding` is `gzip`, "
            "`deflate`, `zstd` or `lz4`",
            default="`true`; for `binary` `false`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="decompressedBytesMax",
            kind=kinds.SIZE,
            doc="the maximum size of a decompressed body; a larger one is bad",
            default="`16m`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="valueSchema",
            kind=kinds.TEXT,
            doc="the schema of bodies: `id BIGINT, price DECIMAL(10, 2)` or another type in "
            "Spark's syntax; for Avro the writer's schema in JSON",
            default="inferred for JSON and CSV, required for Avro",
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
            doc="the full name of a message in `protobufDescriptors`: `shop.Order`",
            default="required for `protobuf`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="protobufFraming",
            kind=kinds.choice("none", "registry"),
            doc="the bytes before the message: none, or the prefix of clients of a schema "
            "registry: a zero, an id in four bytes, and the index of the message in its "
            "file",
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
            doc="the handling of columns that the schema does not have, and of values that do"
            " not fit their type",
            default="`none`; for an inferred schema `addNewColumns` with `schemaLocation`, "
            "otherwise `rescue`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="schemaSample",
            kind=kinds.whole_number(1, SAMPLE_MAX),
            doc="the number of records from which a schema is inferred: the oldest and the "
            "newest of streams, the first of a queue",
            default="1000",
            uses=READS,
            needs="value",
        ),
        Option(
            name="mode",
            kind=kinds.choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST", "DEADLETTER"),
            doc="the handling of a body that cannot be decoded: a row with its bytes and the "
            "reason, no row, failure of the query, or a message to `deadLetterExchange` "
            "or a dead letter of the queue",
            default="`PERMISSIVE`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="rescuedDataColumn",
            kind=kinds.NONEMPTY_NAME,
            doc="the column for values that have no place in `value`; if it is set, "
            "`schemaEvolutionMode` is `rescue` unless that is set, too",
            default="`_rescued_data`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="deadLetterExchange",
            kind=kinds.NAME,
            doc='the exchange to which `DEADLETTER` publishes; `""` is the default exchange',
            default="for a streaming read of a queue by leases, dead letters of the queue "
            "itself; otherwise required for `DEADLETTER`",
            uses=READS,
            needs="mode",
        ),
        Option(
            name="deadLetterRoutingKey",
            kind=kinds.NAME,
            doc="the routing key for `deadLetterExchange`",
            default="that of the message",
            uses=READS,
            needs="deadLetterExchange",
        ),
        Option(
            name="timeZone",
            kind=kinds.TEXT,
            doc="the time zone of times in bodies without one: `Europe/Berlin`, `+02:00`",
            default="`UTC`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="csvSeparator",
            kind=CHARACTER,
            doc="the separator of CSV columns",
            default="`,`",
            uses=READS,
            needs="value",
            aliases=("sep", "delimiter"),
        ),
        Option(
            name="csvQuote",
            kind=CHARACTER,
            doc="the quote around a CSV text that has separators; within it the quote is doubled",
            default='`"`',
            uses=READS,
            needs="value",
            aliases=("quote",),
        ),
        Option(
            name="csvEscape",
            kind=CHARACTER,
            doc="the escape character before a quote within a CSV text",
            default="none",
            uses=READS,
            needs="value",
            aliases=("escape",),
        ),
        Option(
            name="csvNull",
            kind=kinds.ANY_TEXT,
            doc="the CSV text that stands for null",
            default="the empty text",
            uses=READS,
            needs="value",
            aliases=("nullValue",),
        ),
        Option(
            name="avroFraming",
            kind=kinds.choice("none", "single-object", "registry"),
            doc="the bytes before the datum: none; a marker and a fingerprint, by which the "
            "writer's schema is found in `schemaLocation`; or a zero and the id of the "
            "writer's schema in a registry, five bytes that are skipped without "
            "`schemaRegistry`",
            default="`none`",
            needs="value",
        ),
        Option(
            name="jsonFraming",
            kind=kinds.choice("none", "registry"),
            doc="the bytes before the JSON: none, or a zero and the id of a schema in a "
            "registry, five bytes that are skipped",
            default="`none`",
            uses=READS,
            needs="value",
        ),
        Option(
            name="schemaRegistry",
            kind=kinds.HTTP_URL,
            doc="the registry of the writers' schemas, with Confluent's API: "
            "`https://registry:8081`, for Apicurio `https://host/apis/ccompat/v7`",
            default="every body has the schema `valueSchema`",
            needs="avroFraming",
        ),
        Option(
            name="schemaSubject",
            kind=kinds.TEXT,
            doc="the subject in the registry for the schema of written bodies: `orders-value`",
            default="required with `schemaRegistry`",
            uses=WRITES,
            needs="schemaRegistry",
        ),
        Option(
            name="schemaRegister",
            kind=kinds.BOOLEAN,
            doc="register a schema that the subject does not have",
            default="`true`",
            uses=WRITES,
            needs="schemaRegistry",
        ),
        Option(
            name="schemaRegistryUser",
            kind=kinds.TEXT,
            doc="the user of the registry",
            default="no login; a password without a user is a bearer token",
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
            doc="a file on the driver with the password",
            needs="schemaRegistry",
            excludes=("schemaRegistryPasswordEnv",),
        ),
        Option(
            name="schemaRegistryPasswordEnv",
            kind=kinds.TEXT,
            doc="an environment variable of the driver with the password",
            needs="schemaRegistry",
        ),
    ),
)
