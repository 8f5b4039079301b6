# SPDX-License-Identifier: Apache-2.0
"""The options of encoding the column `value`, with all checks that need no registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.columns.options.decode_options import registry_address
from headrace.columns.options.kinds import OptionError

if TYPE_CHECKING:
    from headrace.columns.options.decode_options import RegistryAddress
    from headrace.columns.options.parse import OptionValues


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions:
    """The options of encoding structs in Avro."""

    text: str  # The writer's schema in JSON.
    framing: str = "none"
    registry: RegistryAddress | None = None
    subject: str = ""  # The name of the schema in the registry.
    register: bool = True  # If False, the subject must have the schema already.


def encode_options(values: OptionValues) -> EncodeOptions | None:
    """Check and return the options of encoding; None if the rows already have bodies."""
    value_format = values.get("value")
    if value_format is None:
        return None
    if value_format != "avro":
        raise OptionError(f"option 'value' must be 'avro' for writing; got {value_format!r}")
    text = values.get("valueSchema", "")
    if not text:
        raise OptionError("option 'valueSchema' is missing: the schema of Avro in JSON")
    from headrace.columns.decode.avro import AvroSchemaError, parse_record_schema, spark_type

    try:
        spark_type(parse_record_schema(text))
    except AvroSchemaError as error:
        raise OptionError(f"option 'valueSchema' {error}") from None
    framing = values.get("avroFraming", "none")
    registry = registry_address(values)
    if framing == "registry" and registry is None:
        raise OptionError("option 'avroFraming' is 'registry': option 'schemaRegistry' is needed")
    if registry is not None and "schemaSubject" not in values:
        raise OptionError("option 'schemaRegistry' needs option 'schemaSubject' for writing")
    return EncodeOptions(
        text=text,
        framing=framing,
        registry=registry,
        subject=values.get("schemaSubject", ""),
        register=values.get("schemaRegister", True),
    )
