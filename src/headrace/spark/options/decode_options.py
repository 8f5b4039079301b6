# SPDX-License-Identifier: Apache-2.0
"""The options of decoding, checked as far as that takes no broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, MapType, StructType

from headrace.spark.decode.codec import Policy
from headrace.spark.decode.csv import Dialect
from headrace.spark.decode.dates import zone_of
from headrace.spark.options.kinds import OptionError
from headrace.spark.options.option import Use
from headrace.spark.schema.ddl import SchemaTextError, parse_schema
from headrace.spark.schema.types import nullable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from headrace.spark.options.parse import Given

SAMPLE: Final = 1000
RESCUED: Final = "_rescued_data"
CORRUPT_RECORD: Final = "_corrupt_record"
CORRUPT_REASON: Final = "_corrupt_reason"
VALUE: Final = "value"

# By format, the options that belong to others.
_FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    "json": ("csvSeparator", "csvQuote", "csvEscape", "csvNull", "avroFraming"),
    "csv": ("avroFraming",),
    "avro": (
        *("csvSeparator", "csvQuote", "csvEscape", "csvNull", "timeZone", "schemaSample"),
        *("schemaEvolutionMode", "rescuedDataColumn"),
    ),
}
_SCHEMA_OPTIONS: Final = (
    *("valueSchema", "schemaLocation", "schemaEvolutionMode", "schemaSample"),
    *("rescuedDataColumn", "timeZone", "csvSeparator", "csvQuote", "csvEscape", "csvNull"),
    "avroFraming",
)


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
    mode: str = "PERMISSIVE"
    rescued: str = RESCUED
    zone: tzinfo
    dialect: Dialect = field(default_factory=Dialect)
    framing: str = "none"
    dead_exchange: str | None = None  # None: bad rows are rejected, as dead letters of the queue.
    dead_routing_key: str | None = None

    @property
    def rejects(self) -> bool:
        """Return True if bad rows become dead letters of the queue that they are read from."""
        return self.mode == "DEADLETTER" and self.dead_exchange is None

    @property
    def policy(self) -> Policy:
        """Return the codec's treatment of values that do not fit."""
        looks = self.evolution is not Evolution.NONE
        return Policy(unknown=looks, rescue=looks)

    @property
    def inferred(self) -> bool:
        """Return True if the schema comes from a sample."""
        return self.format in ("json", "csv") and not self.text

    def schema(self) -> DataType | None:
        """The schema that was given as text; None when it is to be inferred."""
        if self.format == "avro":
            return self.avro_types()
        if not self.text:
            return None
        kind = _parsed(self.text)
        if self.format == "csv":
            _check_flat(kind)
        return nullable(kind)

    def avro_types(self) -> StructType:
        """The type of Avro's records."""
        from headrace.spark.decode.avro import AvroSchemaError, read_schema, spark_type

        try:
            return spark_type(read_schema(self.text))
        except AvroSchemaError as error:
            raise OptionError(f"option 'valueSchema' {error}") from None


def decode_options(given: Given) -> DecodeOptions | None:
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
        rescued=_rescued(given),
        zone=zone,
        dialect=Dialect(
            given.get("csvSeparator", ","),
            given.get("csvQuote", '"'),
            given.get("csvEscape"),
            given.get("csvNull", ""),
        ),
        framing=given.get("avroFraming", "none"),
        dead_exchange=given.get("deadLetterExchange"),
        dead_routing_key=given.get("deadLetterRoutingKey"),
    )
    options.schema()  # What is wrong with it is said at once.
    return options


def _check_foreign(given: Given, form: str) -> None:
    for name in _FOREIGN.get(form, _SCHEMA_OPTIONS):
        if name in given:
            raise OptionError(f"option {name!r} does not go with option 'value' being {form!r}")


def _evolution(given: Given, form: str, text: str) -> Evolution:
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
    if form in ("json", "csv") and not text:
        return Evolution.ADD if "schemaLocation" in given else Evolution.RESCUE
    return Evolution.RESCUE if "rescuedDataColumn" in given else Evolution.NONE


def _location(given: Given) -> str:
    text: str = given.get("schemaLocation", "")
    path = text.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        raise OptionError(
            "option 'schemaLocation' must be a directory that the driver and the executors share: "
            f"a path or a file: URL; got {text!r}"
        )
    return path


def _rescued(given: Given) -> str:
    name: str = given.get("rescuedDataColumn", RESCUED)
    from headrace.spark.schema.columns import COLUMNS

    if name.lower() in (*COLUMNS.names, VALUE, CORRUPT_RECORD, CORRUPT_REASON):
        raise OptionError(f"option 'rescuedDataColumn' is {name!r}, the name of another column")
    return name


def _parsed(text: str) -> DataType:
    if text.lstrip().startswith("{"):
        raise OptionError("option 'valueSchema' is JSON, which is for option 'value' being 'avro'")
    try:
        return parse_schema(text)
    except SchemaTextError as error:
        raise OptionError(f"option 'valueSchema' {error}") from None


def _check_flat(kind: DataType) -> None:
    if not isinstance(kind, StructType):
        raise OptionError("option 'valueSchema' must be a list of columns for CSV")
    for one in kind.fields:
        if isinstance(one.dataType, StructType | ArrayType | MapType):
            raise OptionError(
                f"option 'valueSchema' gives column {one.name!r} a type with parts, "
                "which CSV has not"
            )
