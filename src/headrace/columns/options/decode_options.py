# SPDX-License-Identifier: Apache-2.0
"""The options of decoding, with all checks that need no broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.client.url import Secret
from headrace.columns.decode.codec import Policy
from headrace.columns.decode.csv_dialect import Dialect
from headrace.columns.decode.dates import parse_zone
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.option import Use
from headrace.columns.schema.ddl import SchemaTextError, parse_schema
from headrace.columns.schema.types import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from headrace.columns.options.parse import OptionValues
    from headrace.columns.schema.types import DataType

SAMPLE_RECORDS: Final = 1000  # Records from which a schema is inferred, by default.
RESCUED_COLUMN: Final = "_rescued_data"
CORRUPT_RECORD: Final = "_corrupt_record"
CORRUPT_REASON: Final = "_corrupt_reason"
VALUE: Final = "value"
FRAMED_FORMATS: Final = ("json", "avro", "protobuf")  # Formats that clients of registries write.
INFERRED_FORMATS: Final = (
    "json",
    "cbor",
    "msgpack",
    "csv",
)  # Formats whose schema may be inferred.
DESCRIPTORS_BYTES_MAX: Final = 16 << 20  # Spark copies the descriptors to each task.
DECOMPRESSED_BYTES_DEFAULT: Final = 16 << 20
DECOMPRESSED_BYTES_MAX: Final = 1 << 30  # Arrow limits an array to 2 GiB.
NO_PASSWORD: Final = Secret("")

_REGISTRY_OPTIONS: Final = ("schemaRegistry", "schemaRegistryUser", "schemaRegistryPassword")
_CSV_OPTIONS: Final = ("csvSeparator", "csvQuote", "csvEscape", "csvNull")
_PROTOBUF_OPTIONS: Final = ("protobufDescriptors", "protobufMessage", "protobufFraming")
_SCHEMA_OPTIONS: Final = (
    "valueSchema",
    "schemaLocation",
    "schemaEvolutionMode",
    "schemaSample",
    "rescuedDataColumn",
    "timeZone",
    *_CSV_OPTIONS,
    "avroFraming",
    "jsonFraming",
    *_REGISTRY_OPTIONS,
)
# The options that do not apply to a format.
_FOREIGN_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "json": (*_CSV_OPTIONS, "avroFraming", *_REGISTRY_OPTIONS, *_PROTOBUF_OPTIONS),
    "cbor": (*_CSV_OPTIONS, "avroFraming", "jsonFraming", *_REGISTRY_OPTIONS, *_PROTOBUF_OPTIONS),
    "msgpack": (
        *_CSV_OPTIONS,
        "avroFraming",
        "jsonFraming",
        *_REGISTRY_OPTIONS,
        *_PROTOBUF_OPTIONS,
    ),
    "csv": ("avroFraming", "jsonFraming", *_REGISTRY_OPTIONS, *_PROTOBUF_OPTIONS),
    "avro": (
        *_CSV_OPTIONS,
        "timeZone",
        "schemaSample",
        "schemaEvolutionMode",
        "rescuedDataColumn",
        "jsonFraming",
        *_PROTOBUF_OPTIONS,
    ),
    "protobuf": _SCHEMA_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The URL and login of a schema registry; a password without a user is a bearer token."""

    url: str
    user: str = ""
    password: Secret = NO_PASSWORD


class Evolution(Enum):
    """The treatment of columns that the schema lacks; the values of `schemaEvolutionMode`."""

    NONE = "none"
    RESCUE = "rescue"
    ADD = "addNewColumns"
    FAIL_NEW = "failOnNewColumns"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """The options of decoding bodies."""

    format: str
    text: str = ""  # The option `valueSchema`.
    location: str = ""  # The directory of the versions of the schema.
    evolution: Evolution = Evolution.NONE
    sample: int = SAMPLE_RECORDS  # Records from which a schema is inferred.
    decompressed_max: int = 0  # Bytes of a decompressed body; 0 if bodies are not decompressed.
    mode: str = "PERMISSIVE"
    rescued: str = RESCUED_COLUMN  # The column of rescued values.
    zone: tzinfo  # The time zone of texts without one.
    dialect: Dialect = field(default_factory=Dialect)
    framing: str = "none"
    descriptors: bytes = b""  # An encoded FileDescriptorSet, for Protobuf.
    message: str = ""  # The full name of the message, for Protobuf.
    registry: RegistryAddress | None = None  # The registry of the writers' schemas.
    dead_exchange: str | None = None  # None if the queue itself dead-letters malformed messages.
    dead_routing_key: str | None = None

    @property
    def rejects(self) -> bool:
        """Return True if malformed messages become dead letters of the queue that is read."""
        return self.mode == "DEADLETTER" and self.dead_exchange is None

    @property
    def policy(self) -> Policy:
        """Return the treatment of values that do not fit the schema."""
        is_evolving = self.evolution is not Evolution.NONE
        return Policy(unknown=is_evolving, rescue=is_evolving)

    @property
    def inferred(self) -> bool:
        """Return True if the schema comes from a sample."""
        return self.format in INFERRED_FORMATS and not self.text

    def schema(self) -> DataType | None:
        """Return the schema in the options; None if it must be inferred."""
        if self.format == "avro":
            return self.avro_type()
        if self.format == "protobuf":
            return self.protobuf_type()
        if not self.text:
            return None
        kind = _parse_schema_text(self.text)
        if self.format == "csv":
            _check_flat(kind)
        return kind

    def avro_type(self) -> StructType:
        """Return the type of a record of the Avro schema; raise OptionError if it is invalid."""
        from headrace.columns.decode.avro import AvroSchemaError, parse_record_schema, spark_type

        try:
            return spark_type(parse_record_schema(self.text))
        except AvroSchemaError as error:
            raise OptionError(f"option 'valueSchema' {error}") from None

    def protobuf_type(self) -> StructType:
        """Return the type of the Protobuf message; raise OptionError if it is invalid."""
        from headrace.columns.decode.protobuf import ProtobufSchemaError, find_message, spark_type

        try:
            return spark_type(find_message(self.descriptors, self.message))
        except ProtobufSchemaError as error:
            raise OptionError(f"option 'protobufDescriptors' {error}") from None


def decode_options(values: OptionValues) -> DecodeOptions | None:
    """Check and return the options of decoding; None if bodies are not decoded."""
    value_format = values.get("value")
    if value_format is None:
        return None
    _check_foreign(values, value_format)
    mode = values.get("mode", "PERMISSIVE")
    if mode != "DEADLETTER" and "deadLetterExchange" in values:
        raise OptionError("option 'deadLetterExchange' is for mode 'DEADLETTER' only")
    has_lease = values.use is Use.STREAM and "queue" in values and "spoolDirectory" not in values
    if mode == "DEADLETTER" and "deadLetterExchange" not in values and not has_lease:
        raise OptionError(
            "option 'mode' is 'DEADLETTER': option 'deadLetterExchange' is needed, but for a "
            "streaming read of a queue by leases"
        )
    zone_name = values.get("timeZone", "UTC")
    zone = parse_zone(zone_name)
    if zone is None:
        raise OptionError(f"option 'timeZone' must be a zone or an offset; got {zone_name!r}")
    text = values.get("valueSchema", "")
    if value_format == "avro" and not text:
        raise OptionError("option 'valueSchema' is missing: the schema of Avro in JSON")
    options = DecodeOptions(
        format=value_format,
        text=text,
        location=_parse_location(values),
        evolution=_parse_evolution(values, value_format, text),
        sample=values.get("schemaSample", SAMPLE_RECORDS),
        mode=mode,
        rescued=_parse_rescued_column(values),
        zone=zone,
        dialect=Dialect(
            values.get("csvSeparator", ","),
            values.get("csvQuote", '"'),
            values.get("csvEscape"),
            values.get("csvNull", ""),
        ),
        framing=_parse_framing(values, value_format),
        descriptors=_read_descriptors(values) if value_format == "protobuf" else b"",
        message=values.get("protobufMessage", ""),
        registry=registry_address(values),
        decompressed_max=_parse_decompressed_max(values, value_format),
        dead_exchange=values.get("deadLetterExchange"),
        dead_routing_key=values.get("deadLetterRoutingKey"),
    )
    options.schema()  # Raises OptionError for an invalid schema.
    return options


def _check_foreign(values: OptionValues, value_format: str) -> None:
    """Raise OptionError for an option that does not apply to the format."""
    for name in _FOREIGN_OPTIONS.get(value_format, (*_SCHEMA_OPTIONS, *_PROTOBUF_OPTIONS)):
        if name in values:
            raise OptionError(
                f"option {name!r} does not go with option 'value' being {value_format!r}"
            )


def _parse_evolution(values: OptionValues, value_format: str, text: str) -> Evolution:
    """Return the option, or else the default for the format and the source of the schema."""
    mode_name = values.get("schemaEvolutionMode")
    if mode_name is not None:
        evolution = Evolution(mode_name)
        if evolution is Evolution.NONE and "rescuedDataColumn" in values:
            raise OptionError(
                "option 'rescuedDataColumn' contradicts option 'schemaEvolutionMode' being 'none'"
            )
        if evolution is Evolution.ADD and "schemaLocation" not in values:
            raise OptionError(
                "option 'schemaEvolutionMode' is 'addNewColumns': option 'schemaLocation' is needed"
            )
        return evolution
    if value_format in INFERRED_FORMATS and not text:
        return Evolution.ADD if "schemaLocation" in values else Evolution.RESCUE
    return Evolution.RESCUE if "rescuedDataColumn" in values else Evolution.NONE


def _parse_location(values: OptionValues) -> str:
    text: str = values.get("schemaLocation", "")
    path = text.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        raise OptionError(
            "option 'schemaLocation' must be a directory that the driver and the executors share: "
            f"a path or a file: URL; got {text!r}"
        )
    return path


def _read_descriptors(values: OptionValues) -> bytes:
    """Return the content of the file of descriptors."""
    for name in ("protobufDescriptors", "protobufMessage"):
        if name not in values:
            raise OptionError(f"option {name!r} is missing: option 'value' is 'protobuf'")
    path: str = values["protobufDescriptors"]
    try:
        with Path(path).open("rb") as file:
            data = file.read(DESCRIPTORS_BYTES_MAX + 1)
    except OSError as error:
        raise OptionError(
            f"option 'protobufDescriptors': {path!r} cannot be read: {error.strerror}"
        ) from None
    if len(data) > DESCRIPTORS_BYTES_MAX:
        raise OptionError(
            f"option 'protobufDescriptors': {path!r} has more than {DESCRIPTORS_BYTES_MAX} bytes"
        )
    return data


def _parse_framing(values: OptionValues, value_format: str) -> str:
    framing: str = (
        values.get(f"{value_format}Framing", "none") if value_format in FRAMED_FORMATS else "none"
    )
    return framing


def _parse_decompressed_max(values: OptionValues, value_format: str) -> int:
    """Return the limit of a decompressed body in bytes; 0 without decompression."""
    if not values.get("decompress", value_format != "binary"):
        if "decompressedBytesMax" in values:
            raise OptionError("option 'decompressedBytesMax' needs option 'decompress'")
        return 0
    size: int = values.get("decompressedBytesMax", DECOMPRESSED_BYTES_DEFAULT)
    if size > DECOMPRESSED_BYTES_MAX:
        raise OptionError(
            f"option 'decompressedBytesMax' is {size}, more than {DECOMPRESSED_BYTES_MAX}"
        )
    return size


def registry_address(values: OptionValues) -> RegistryAddress | None:
    """Return the address of the registry in the options; None without a registry."""
    url = values.get("schemaRegistry")
    if url is None:
        return None
    if values.get("avroFraming") != "registry":
        raise OptionError("option 'schemaRegistry' needs option 'avroFraming' being 'registry'")
    password = Secret(values.get("schemaRegistryPassword", ""))
    user = values.get("schemaRegistryUser", "")
    if user and not password:
        raise OptionError("option 'schemaRegistryUser' needs option 'schemaRegistryPassword'")
    return RegistryAddress(url, user, password)


def _parse_rescued_column(values: OptionValues) -> str:
    name: str = values.get("rescuedDataColumn", RESCUED_COLUMN)
    from headrace.columns.schema.columns import COLUMNS

    if name.lower() in (*COLUMNS.names, VALUE, CORRUPT_RECORD, CORRUPT_REASON):
        raise OptionError(f"option 'rescuedDataColumn' is {name!r}, the name of another column")
    return name


def _parse_schema_text(text: str) -> DataType:
    if text.lstrip().startswith("{"):
        raise OptionError("option 'valueSchema' is JSON, which is for option 'value' being 'avro'")
    try:
        return parse_schema(text)
    except SchemaTextError as error:
        raise OptionError(f"option 'valueSchema' {error}") from None


def _check_flat(kind: DataType) -> None:
    if not isinstance(kind, StructType):
        raise OptionError("option 'valueSchema' must be a list of columns for CSV")
    for column in kind.fields:
        if isinstance(column.kind, StructType | ArrayType | MapType):
            raise OptionError(
                f"option 'valueSchema' gives column {column.name!r} a type with parts, "
                "which CSV does not have"
            )
