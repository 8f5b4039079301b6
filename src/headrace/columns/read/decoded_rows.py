# SPDX-License-Identifier: Apache-2.0
"""Decoding of bodies into the column `value`, and the handling of malformed bodies.

A task decodes batches of raw columns. The option `mode` selects the handling of a malformed body.
The column `_corrupt_record` or the dead letter has the bytes of the body.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.decode.codec import (
    BinaryCodec,
    Codec,
    Decoded,
    RegistryFramedCodec,
    TextCodec,
)
from headrace.columns.decode.csv import CsvCodec
from headrace.columns.decode.json import JsonCodec
from headrace.columns.options.decode_options import (
    CORRUPT_REASON,
    CORRUPT_RECORD,
    VALUE,
    DecodeOptions,
    Evolution,
)
from headrace.columns.read.decompression import DecompressedPart, decompress
from headrace.columns.runtime.schema_log import SchemaLog
from headrace.columns.schema.columns import CONTENT_HEADER
from headrace.columns.schema.types import DataType, StructType

if TYPE_CHECKING:
    from headrace.client.url import Secret
    from headrace.columns.schema.columns import QueryColumns
    from headrace.untyped import JsonObject

log = logging.getLogger(__name__)

DEAD_LETTER_COLUMNS: Final = ("body", CONTENT_HEADER, "exchange", "routing_key", "offset")
SHOWN_MAX: Final = 3  # Malformed rows that an error or a warning describes.


class DecodeError(RuntimeError):
    """A body cannot be decoded, and the query's mode is FAILFAST."""


class SchemaChangedError(RuntimeError):
    """A record does not fit the schema of the query; the text has the remedy."""


class RejectRecorder(Protocol):
    """A record of the malformed messages of a queue, which become its dead letters."""

    def record(self, first: int, last: int, malformed_offsets: Sequence[int]) -> None:
        """Record which messages of [first, last) are malformed, sorted by offset."""


class BatchDecoder:
    """A converter of batches of raw columns to the columns of a query."""

    def __init__(
        self,
        options: DecodeOptions,
        columns: QueryColumns,
        source: str,
        uri: Secret,
        rejects: RejectRecorder | None = None,
    ) -> None:
        """Make a decoder of the stream or queue `source`.

        With `rejects`, malformed messages become dead letters of their own queue. Otherwise dead
        letters are published at the broker `uri`.
        """
        self.options = options
        self.columns = columns
        self.source = source
        self._uri = uri
        self._codec = make_codec(options, columns.value)
        self._rejects = rejects
        self._dropped = 0

    @property
    def raw(self) -> tuple[str, ...]:
        """The raw columns that the decoder needs."""
        columns = {"body": None, "offset": None}
        if self.options.mode == "DEADLETTER" and self._rejects is None:
            columns |= dict.fromkeys(DEAD_LETTER_COLUMNS)
        if self.options.decompressed_max:
            columns[CONTENT_HEADER] = None
        return tuple(columns | dict.fromkeys(self.columns.raw))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batches; decoded batches without rows are left out."""
        for batch in batches:
            for decoded in self.decode(batch):
                if decoded.num_rows:
                    yield decoded
        if self._dropped:
            log.warning(
                "%s: %d bodies could not be decoded and were dropped", self.source, self._dropped
            )

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode one batch, in parts if its decompressed bodies are large."""
        if not self.options.decompressed_max:
            yield self._decode(DecompressedPart(batch, batch.column("body").to_pylist()))
            return
        for part in decompress(batch, self.options.decompressed_max):
            yield self._decode(part)

    def _decode(self, part: DecompressedPart) -> pa.RecordBatch:
        """Return the columns of the query for one part of a batch."""
        batch, bodies = part.batch, part.bodies
        decoded = self._codec.decode(bodies)
        if part.faults:  # Bodies that could not be decompressed were decoded as empty.
            decoded = _add_faults(decoded, part.faults)
        if decoded.grown is not None or (
            decoded.rescued and self.options.evolution is Evolution.FAIL
        ):
            self._handle_schema_change(batch, decoded)
        if decoded.faults:
            self._handle_malformed_rows(batch, decoded)
        if self._rejects is not None:
            offsets = batch.column("offset").to_pylist()
            malformed_offsets = [offsets[index] for index in sorted(decoded.faults)]
            self._rejects.record(offsets[0], offsets[-1] + 1, malformed_offsets)
        decoded_batch = pa.RecordBatch.from_arrays(
            [self._column(name, batch, decoded) for name in self.columns.names],
            schema=self.columns.arrow_schema(self.options.rescued),
        )
        if decoded.faults and self.options.mode != "PERMISSIVE":
            is_kept = [index not in decoded.faults for index in range(len(bodies))]
            decoded_batch = decoded_batch.filter(pa.array(is_kept, pa.bool_()))
        return decoded_batch

    def _column(self, name: str, batch: pa.RecordBatch, decoded: Decoded) -> pa.Array:
        """Return a column of the query, decoded or raw."""
        count = batch.num_rows
        if name == VALUE:
            return decoded.values
        if name == self.options.rescued:
            return _sparse_column(decoded.rescued, count, pa.string())
        if name == CORRUPT_RECORD:
            bodies = batch.column("body")
            malformed_bodies = {index: bodies[index].as_py() for index in decoded.faults}
            return _sparse_column(malformed_bodies, count, pa.binary())
        if name == CORRUPT_REASON:
            return _sparse_column(decoded.faults, count, pa.string())
        return batch.column(name)

    def _handle_malformed_rows(self, batch: pa.RecordBatch, decoded: Decoded) -> None:
        """Handle malformed rows as `mode` says, before the other rows of the batch are yielded."""
        mode = self.options.mode
        if mode == "FAILFAST":
            raise DecodeError(
                f"{self._describe(batch, decoded.faults)}; option 'mode' is 'FAILFAST': "
                "'PERMISSIVE', 'DROPMALFORMED' and 'DEADLETTER' go on"
            )
        if mode == "DROPMALFORMED":
            if not self._dropped:
                log.warning("%s; dropped", self._describe(batch, decoded.faults))
            self._dropped += len(decoded.faults)
        elif mode == "DEADLETTER" and self._rejects is not None:
            log.warning("%s; rejected", self._describe(batch, decoded.faults))
        elif mode == "DEADLETTER":
            from headrace.columns.read.dead_letters import publish

            malformed_rows = pc.take(batch, pa.array(sorted(decoded.faults), pa.int64()))
            reasons = [decoded.faults[index] for index in sorted(decoded.faults)]
            publish(self._uri, self.options, self.source, malformed_rows, reasons)
            log.warning(
                "%s; sent to the dead-letter exchange", self._describe(batch, decoded.faults)
            )

    def _handle_schema_change(self, batch: pa.RecordBatch, decoded: Decoded) -> None:
        """Handle columns and types that the schema lacks, as `schemaEvolutionMode` says."""
        evolution = self.options.evolution
        if evolution is Evolution.RESCUE:
            return
        rows = dict(sorted(decoded.rescued.items()))
        if evolution is Evolution.FAIL:
            raise SchemaChangedError(
                f"{self._describe(batch, rows)}: it does not fit the schema; option "
                "'schemaEvolutionMode' is 'fail'"
            )
        assert decoded.first_new is not None
        text = self._describe(batch, {decoded.first_new: rows[decoded.first_new]})
        if evolution is Evolution.FAIL_NEW:
            raise SchemaChangedError(
                f"{text}: the records have new columns; option 'schemaEvolutionMode' is "
                "'failOnNewColumns'"
            )
        grown = decoded.grown
        assert grown is not None
        versions = SchemaLog(self.options.location)
        versions.put(self.options.format, lambda newest: _merge_schemas(newest, grown))
        raise SchemaChangedError(
            f"{text}: new columns, and {self.options.location} has a new version of "
            "the schema; start the query again to read them"
        )

    def _describe(self, batch: pa.RecordBatch, rows: dict[int, str]) -> str:
        """Return the text of an error about rows: the offsets and faults of the first ones."""
        offsets = batch.column("offset")
        descriptions = [
            f"offset {offsets[index].as_py()} of {self.source!r}: {text}"
            for index, text in sorted(rows.items())[:SHOWN_MAX]
        ]
        omitted = len(rows) - len(descriptions)
        remainder = f", and {omitted} more" if omitted else ""
        return "; ".join(descriptions) + remainder


def make_codec(options: DecodeOptions, kind: DataType | None) -> Codec:
    """Return the codec for the type of the column `value`."""
    if options.format == "string":
        return TextCodec()
    if options.format == "binary":
        return BinaryCodec()
    if options.format == "protobuf":
        from headrace.columns.decode.protobuf import ProtobufCodec, find_message

        return ProtobufCodec(find_message(options.descriptors, options.message), options.framing)
    if options.format == "avro":
        from headrace.columns.decode.avro import AvroCodec, parse_record_schema

        older_texts = SchemaLog(options.location).avro_schemas() if options.location else []
        schemas = [parse_record_schema(text) for text in older_texts]
        schema = parse_record_schema(options.text)
        find_writer = None if options.registry is None else _make_writer_lookup(options, schema)
        return AvroCodec(schema, options.framing, schemas, find_writer)
    assert kind is not None
    if options.format == "csv":
        assert isinstance(kind, StructType), kind
        return CsvCodec(kind, options.zone, options.policy, options.dialect)
    if options.format in ("cbor", "msgpack"):
        from headrace.columns.decode.binary_values import PARSERS

        return JsonCodec(kind, options.zone, options.policy, PARSERS[options.format])
    json_codec = JsonCodec(kind, options.zone, options.policy)
    return RegistryFramedCodec(json_codec) if options.framing == "registry" else json_codec


def _make_writer_lookup(options: DecodeOptions, reader: JsonObject) -> Callable[[int], JsonObject]:
    """Return a function that looks up and parses the writer's schema of an id.

    The function raises UnusableSchemaError for a schema that is missing or cannot be used.
    """
    from headrace.columns.decode.avro import AvroSchemaError
    from headrace.columns.decode.avro_writers import parse_writer_schema
    from headrace.columns.registry.schemas import UnusableSchemaError, WriterSchemas

    assert options.registry is not None
    schemas = WriterSchemas(options.registry, options.location)
    # By id: the schema, or the reason why it is unusable.
    parsed: dict[int, JsonObject | str] = {}

    def parse(schema_id: int) -> JsonObject | str:
        schema = schemas.find(schema_id)
        if schema.kind != "AVRO":
            return f"schema {schema_id} is of {schema.kind}, not of AVRO"
        try:
            writer = parse_writer_schema(schema.text, schema.references)
        except AvroSchemaError as error:
            return f"schema {schema_id} {error}"
        return reader if writer == reader else writer

    def find_writer(schema_id: int) -> JsonObject:
        writer = parsed.get(schema_id)
        if writer is None:
            writer = parsed[schema_id] = parse(schema_id)
        if isinstance(writer, str):
            raise UnusableSchemaError(writer)
        return writer

    return find_writer


def _add_faults(decoded: Decoded, faults: dict[int, str]) -> Decoded:
    """Add the faults of bodies that could not be decompressed, and make their values null."""
    is_valid = pa.array([row not in faults for row in range(len(decoded.values))], pa.bool_())
    values = decoded.values
    masked_values = values.take(
        pc.if_else(is_valid, pa.array(range(len(values)), pa.int64()), None)
    )
    return replace(
        decoded, values=masked_values, faults=dict(sorted({**decoded.faults, **faults}.items()))
    )


def _merge_schemas(newest: StructType | None, grown: StructType) -> StructType:
    from headrace.columns.decode.infer import grow

    return grown if newest is None else grow(newest, grown)


def _sparse_column(
    values: dict[int, str] | dict[int, bytes], count: int, kind: pa.DataType
) -> pa.Array:
    """Return a column of `count` rows with values by index; other rows are null."""
    if not values:
        return pa.nulls(count, kind)
    return pa.array([values.get(index) for index in range(count)], kind)
