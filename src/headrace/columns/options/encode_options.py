# SPDX-License-Identifier: Apache-2.0
"""The options that say how a write encodes the column `value`, checked without a registry."""

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
    """A body is the Avro datum of a struct; `text` is the writer's schema."""

    text: str
    framing: str = "none"
    registry: RegistryAddress | None = None
    subject: str = ""
    register: bool = True  # Otherwise the schema must be registered already.


def encode_options(given: OptionValues) -> EncodeOptions | None:
    """Return the options of encoding; None if rows have their bodies."""
    form = given.get("value")
    if form is None:
        return None
    if form != "avro":
        raise OptionError(f"option 'value' must be 'avro' for writing; got {form!r}")
    text = given.get("valueSchema", "")
    if not text:
        raise OptionError("option 'valueSchema' is missing: the schema of Avro in JSON")
    from headrace.columns.decode.avro import AvroSchemaError, read_schema, spark_type

    try:
        spark_type(read_schema(text))
    except AvroSchemaError as error:
        raise OptionError(f"option 'valueSchema' {error}") from None
    framing = given.get("avroFraming", "none")
    registry = registry_address(given)
    if framing == "registry" and registry is None:
        raise OptionError("option 'avroFraming' is 'registry': option 'schemaRegistry' is needed")
    if registry is not None and "schemaSubject" not in given:
        raise OptionError("option 'schemaRegistry' needs option 'schemaSubject' for writing")
    return EncodeOptions(
        text=text,
        framing=framing,
        registry=registry,
        subject=given.get("schemaSubject", ""),
        register=given.get("schemaRegister", True),
    )
