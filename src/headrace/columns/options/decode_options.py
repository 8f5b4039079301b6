# SPDX-License-Identifier: Apache-2.0
"""The options of decoding, checked as far as that takes no broker."""

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
from headrace.columns.decode.dates import zone_of
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.option import Use
from headrace.columns.schema.ddl import SchemaTextError, parse_schema
from headrace.columns.schema.types import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from headrace.columns.options.parse import OptionValues
    from headrace.columns.schema.types import DataType

SAMPLE: Final = 1000
RESCUED: Final = "_rescued_data"
CORRUPT_RECORD: Final = "_corrupt_record"
CORRUPT_REASON: Final = "_corrupt_reason"
VALUE: Final = "value"
FRAMED: Final = ("json", "avro", "protobuf")  # Formats that clients of registries write.
INFERRED: Final = ("json", "cbor", "msgpack", "csv")  # Formats whose schema may be inferred.
DESCRIPTORS_MAX: Final = 16 << 20  # Bytes of a file; it goes to each task.
DECOMPRESSED_MAX: Final = 16 << 20
DECOMPRESSED_LIMIT: Final = 1 << 30  # An array of Arrow has less than twice this.
NO_PASSWORD: Final = Secret("")

_REGISTRY: Final = ("schemaRegistry", "schemaRegistryUser", "schemaRegistryPassword")
_CSV: Final = ("csvSeparator", "csvQuote", "csvEscape", "csvNull")
_PROTOBUF: Final = ("protobufDescriptors", "protobufMessage", "protobufFraming")
_SCHEMA_OPTIONS: Final = (
    *("valueSchema", "schemaLocation", "schemaEvolutionMode", "schemaSample"),
    *("rescuedDataColumn", "timeZone", *_CSV, "avroFraming", "jsonFraming", *_REGISTRY),
)
# By format, the options that belong to others.
_FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    "json": (*_CSV, "avroFraming", *_REGISTRY, *_PROTOBUF),
    "cbor": (*_CSV, "avroFraming", "jsonFraming", *_REGISTRY, *_PROTOBUF),
    "msgpack": (*_CSV, "avroFraming", "jsonFraming", *_REGISTRY, *_PROTOBUF),
    "csv": ("avroFraming", "jsonFraming", *_REGISTRY, *_PROTOBUF),
    "avro": (
        *(*_CSV, "timeZone", "schemaSample", "schemaEvolutionMode", "rescuedDataColumn"),
        *("jsonFraming", *_PROTOBUF),
    ),
    "protobuf": _SCHEMA_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The URL of a schema registry and a login; a password without a user is a bearer token."""

    url: str
    user: str = ""
    password: Secret = NO_PASSWORD


class Evolution(Enum):
    """The treatment of columns that the schema lacks."""

    NONE = "none"
    RESCUE = "rescue"
    ADD = "addNewColumns"
    FAIL_NEW = "failOnNewColumns"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """The decoding of bodies: `text` is the schema as given, `location` its versions."""

    format: str
    text: str = ""
    location: str = ""
    evolution: Evolution = Evolution.NONE
    sample: int = SAMPLE
    decompressed_max: int = 0  # Bytes of a body; 0: bodies are taken as they are.
    mode: str = "PERMISSIVE"
    rescued: str = RESCUED
    zone: tzinfo
    dialect: Dialect = field(default_factory=Dialect)
    framing: str = "none"
    descriptors: bytes = b""  # A FileDescriptorSet.
    message: str = ""
    registry: RegistryAddress | None = None  # For the writers' schemas.
    dead_exchange: str | None = None  # None: bad rows are rejected, as dead letters of the queue.
    dead_routing_key: str | None = None

    @property
    def rejects(self) -> bool:
        """Return True if malformed messages become dead letters of the queue of the read."""
        return self.mode == "DEADLETTER" and self.dead_exchange is None

    @property
    def policy(self) -> Policy:
        """Return the codec's treatment of values that do not fit."""
        looks = self.evolution is not Evolution.NONE
        return Policy(unknown=looks, rescue=looks)

    @property
    def inferred(self) -> bool:
        """Return True if the schema comes from a sample."""
        return self.format in INFERRED and not self.text

    def schema(self) -> DataType | None:
        """Return the given schema; None if it must be inferred."""
        if self.format == "avro":
            return self.avro_types()
        if self.format == "protobuf":
            return self.protobuf_types()
        if not self.text:
            return None
        kind = _parse_text(self.text)
        if self.format == "csv":
            _check_flat(kind)
        return kind

    def avro_types(self) -> StructType:
        """The type of Avro's records."""
        from headrace.columns.decode.avro import AvroSchemaError, read_schema, spark_type

        try:
            return spark_type(read_schema(self.text))
        except AvroSchemaError as error:
            raise OptionError(f"option 'valueSchema' {error}") from None

    def protobuf_types(self) -> StructType:
        """The type of Protobuf's messages."""
        from headrace.columns.decode.protobuf import ProtobufSchemaError, read_message, spark_type

        try:
            return spark_type(read_message(self.descriptors, self.message))
        except ProtobufSchemaError as error:
            raise OptionError(f"option 'protobufDescriptors' {error}") from None


def decode_options(given: OptionValues) -> DecodeOptions | None:
    """Return the options of decoding; None if bodies are not decoded."""
    form = given.get("value")
    if form is None:
        return None
    _check_foreign(given, form)
    mode = given.get("mode", "PERMISSIVE")
    if mode != "DEADLETTER" and "deadLetterExchange" in given:
        raise OptionError("option 'deadLetterExchange' is for mode 'DEADLETTER' only")
    leases = given.use is Use.STREAM and "queue" in given and "spoolDirectory" not in given
    if mode == "DEADLETTER" and "deadLetterExchange" not in given and not leases:
        raise OptionError(
            "option 'mode' is 'DEADLETTER': option 'deadLetterExchange' is needed, but for a "
            "streaming read of a queue by leases"
        )
    zone_name = given.get("timeZone", "UTC")
    zone = zone_of(zone_name)
    if zone is None:
        raise OptionError(f"option 'timeZone' must be a zone or an offset; got {zone_name!r}")
    text = given.get("valueSchema", "")
    if form == "avro" and not text:
        raise OptionError("option 'valueSchema' is missing: the schema of Avro in JSON")
    options = DecodeOptions(
        format=form,
        text=text,
        location=_location(given),
        evolution=_evolution(given, form, text),
        sample=given.get("schemaSample", SAMPLE),
        mode=mode,
        rescued=_rescued_column(given),
        zone=zone,
        dialect=Dialect(
            given.get("csvSeparator", ","),
            given.get("csvQuote", '"'),
            given.get("csvEscape"),
            given.get("csvNull", ""),
        ),
        framing=_framing(given, form),
        descriptors=_descriptors(given) if form == "protobuf" else b"",
        message=given.get("protobufMessage", ""),
        registry=registry_address(given),
        decompressed_max=_decompressed_max(given, form),
        dead_exchange=given.get("deadLetterExchange"),
        dead_routing_key=given.get("deadLetterRoutingKey"),
    )
    options.schema()  # Report its errors at once.
    return options


def _check_foreign(given: OptionValues, form: str) -> None:
    for name in _FOREIGN.get(form, (*_SCHEMA_OPTIONS, *_PROTOBUF)):
        if name in given:
            raise OptionError(f"option {name!r} does not go with option 'value' being {form!r}")


def _evolution(given: OptionValues, form: str, text: str) -> Evolution:
    asked = given.get("schemaEvolutionMode")
    if asked is not None:
        evolution = Evolution(asked)
        if evolution is Evolution.NONE and "rescuedDataColumn" in given:
            raise OptionError(
                "option 'rescuedDataColumn' contradicts option 'schemaEvolutionMode' being 'none'"
            )
        if evolution is Evolution.ADD and "schemaLocation" not in given:
            raise OptionError(
                "option 'schemaEvolutionMode' is 'addNewColumns': option 'schemaLocation' is needed"
            )
        return evolution
    if form in INFERRED and not text:
        return Evolution.ADD if "schemaLocation" in given else Evolution.RESCUE
    return Evolution.RESCUE if "rescuedDataColumn" in given else Evolution.NONE


def _location(given: OptionValues) -> str:
    text: str = given.get("schemaLocation", "")
    path = text.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        raise OptionError(
            "option 'schemaLocation' must be a directory that the driver and the executors share: "
            f"a path or a file: URL; got {text!r}"
        )
    return path


def _descriptors(given: OptionValues) -> bytes:
    for name in ("protobufDescriptors", "protobufMessage"):
        if name not in given:
            raise OptionError(f"option {name!r} is missing: option 'value' is 'protobuf'")
    path: str = given["protobufDescriptors"]
    try:
        with Path(path).open("rb") as file:
            octets = file.read(DESCRIPTORS_MAX + 1)
    except OSError as error:
        raise OptionError(
            f"option 'protobufDescriptors': {path!r} cannot be read: {error.strerror}"
        ) from None
    if len(octets) > DESCRIPTORS_MAX:
        raise OptionError(
            f"option 'protobufDescriptors': {path!r} has more than {DESCRIPTORS_MAX} bytes"
        )
    return octets


def _framing(given: OptionValues, form: str) -> str:
    framing: str = given.get(f"{form}Framing", "none") if form in FRAMED else "none"
    return framing


def _decompressed_max(given: OptionValues, form: str) -> int:
    if not given.get("decompress", form != "binary"):
        if "decompressedBytesMax" in given:
            raise OptionError("option 'decompressedBytesMax' needs option 'decompress'")
        return 0
    size: int = given.get("decompressedBytesMax", DECOMPRESSED_MAX)
    if size > DECOMPRESSED_LIMIT:
        raise OptionError(
            f"option 'decompressedBytesMax' is {size}, more than {DECOMPRESSED_LIMIT}"
        )
    return size


def registry_address(given: OptionValues) -> RegistryAddress | None:
    """Return the registry of the options; None if they name none."""
    url = given.get("schemaRegistry")
    if url is None:
        return None
    if given.get("avroFraming") != "registry":
        raise OptionError("option 'schemaRegistry' needs option 'avroFraming' being 'registry'")
    password = Secret(given.get("schemaRegistryPassword", ""))
    user = given.get("schemaRegistryUser", "")
    if user and not password:
        raise OptionError("option 'schemaRegistryUser' needs option 'schemaRegistryPassword'")
    return RegistryAddress(url, user, password)


def _rescued_column(given: OptionValues) -> str:
    name: str = given.get("rescuedDataColumn", RESCUED)
    from headrace.columns.schema.columns import COLUMNS

    if name.lower() in (*COLUMNS.names, VALUE, CORRUPT_RECORD, CORRUPT_REASON):
        raise OptionError(f"option 'rescuedDataColumn' is {name!r}, the name of another column")
    return name


def _parse_text(text: str) -> DataType:
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
                "which CSV has not"
            )
