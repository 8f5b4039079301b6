# SPDX-License-Identifier: Apache-2.0
"""Data contracts (ODCS) as columns and rules of a view.

`required`, bounds, patterns and enumerations are rules about rows; `unique` and metrics of quality
are rules about batches. Quality of the types `sql`, `text` and `custom` is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from headrace.pipeline.config.errors import Problem
from headrace.pipeline.config.lines import Lines, shown
from headrace.pipeline.config.settings import AmqpSource, Contract, FileSource, Pipeline, Rule
from headrace.pipeline.config.terms import Terms

if TYPE_CHECKING:
    from open_data_contract_standard.model import DataQuality, SchemaObject, SchemaProperty

# Spark's type for a logical type, and other types that fit it.
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("STRING",),
    "integer": ("BIGINT", "INT", "SMALLINT", "TINYINT"),
    "number": ("DOUBLE", "FLOAT", "DECIMAL", "BIGINT", "INT", "SMALLINT", "TINYINT"),
    "boolean": ("BOOLEAN",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP", "TIMESTAMP_NTZ"),
    "time": ("STRING", "TIME"),
    "array": ("ARRAY",),
    "object": ("STRUCT",),
}
BOUNDS: Final = {
    "minimum": "{column} >= {bound}",
    "maximum": "{column} <= {bound}",
    "exclusiveMinimum": "{column} > {bound}",
    "exclusiveMaximum": "{column} < {bound}",
    "multipleOf": "{column} % {bound} = 0",
    "minLength": "length({column}) >= {bound}",
    "maxLength": "length({column}) <= {bound}",
    "minItems": "size({column}) >= {bound}",
    "maxItems": "size({column}) <= {bound}",
    "pattern": "{column} RLIKE {bound}",
}
OPERATORS: Final = {
    "mustBe": "=",
    "mustNotBe": "<>",
    "mustBeGreaterThan": ">",
    "mustBeGreaterOrEqualTo": ">=",
    "mustBeLessThan": "<",
    "mustBeLessOrEqualTo": "<=",
}
NAME_MAX: Final = 64
DECIMAL: Final = r"(?i)decimal\(\s*\d{1,2}\s*,\s*\d{1,2}\s*\)"


class ContractError(ValueError):
    """A contract cannot be read, or has terms that rules cannot express."""


@dataclass(frozen=True)
class ViewContract:
    """The contract of a view: the terms of its columns, their DDL, and rules."""

    terms: Terms
    ddl: str
    rules: tuple[Rule, ...]


def with_contracts(pipeline: Pipeline, lines: Lines) -> tuple[Pipeline, list[Problem]]:
    """Return the pipeline with the columns and rules of its contracts, and their problems."""
    problems: list[Problem] = []
    rules, sources, terms = [*pipeline.rules], dict(pipeline.sources), {}
    origin: dict[str, int] = {}
    for at, contract in enumerate(pipeline.contracts):
        source = sources.get(contract.view)
        prefix = "value." if isinstance(source, AmqpSource) else ""
        try:
            if isinstance(source, AmqpSource) and "value" not in source.options:
                raise ContractError(f"source {contract.view!r} needs the option 'value'")
            view_contract = read(pipeline.resolve_path(contract.file), contract, prefix)
        except ContractError as error:
            place = ("contracts", at, "file")
            problems.append(Problem(lines.of(place), shown(place), str(error)))
            continue
        terms[contract.view] = view_contract.terms
        rules += view_contract.rules
        origin |= {rule.name: at for rule in view_contract.rules}
        if isinstance(source, AmqpSource) and "valueSchema" not in source.options:
            options = {**source.options, "valueSchema": view_contract.ddl}
            sources[contract.view] = source.model_copy(update={"options": options})
        elif isinstance(source, FileSource) and source.ddl is None:
            sources[contract.view] = source.model_copy(update={"ddl": view_contract.ddl})
    made = replace(pipeline, sources=sources, rules=rules, terms=terms, of_contract=origin)
    return made, problems


def read(path: str, contract: Contract, prefix: str = "") -> ViewContract:
    """Return the content of a contract's file; ContractError names its mistakes."""
    try:
        import yaml
        from open_data_contract_standard.model import OpenDataContractStandard
    except ImportError as error:
        raise ContractError(f"contracts need the package {error.name}") from None
    try:
        whole = OpenDataContractStandard.from_string(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ContractError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ContractError(f"{path}: no YAML: {str(error).splitlines()[0]}") from None
    except (ValidationError, TypeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        where = "" if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ContractError(f"{path}: no contract: {where or error}") from None
    if whole.kind != "DataContract":
        raise ContractError(f"{path}: its 'kind' is not DataContract")
    schemas = {schema.name or "": schema for schema in whole.schema_ or ()}
    if contract.schema_name is None and len(schemas) != 1:
        raise ContractError(f"{path}: 'schema' chooses one of {', '.join(schemas) or 'none'}")
    chosen = schemas.get(contract.schema_name or next(iter(schemas)))
    if chosen is None:
        listed = ", ".join(schemas) or "none"
        raise ContractError(f"{path}: it has no schema {contract.schema_name!r}, but {listed}")
    return _view_contract(chosen, contract, prefix)


def _view_contract(schema: SchemaObject, contract: Contract, prefix: str) -> ViewContract:
    properties = schema.properties or []
    for field in properties:
        if not field.name:
            raise ContractError("a property has no name")
    columns = {str(field.name): allowed_types(field) for field in properties}
    rules: list[Rule] = []
    names: set[str] = set()

    def add(kind: str, **terms: object) -> None:
        base = re.sub(r"\W+", "_", f"{contract.view}_{kind}")[: NAME_MAX - 4]
        name = next(
            candidate
            for at in range(1000)
            if (candidate := f"{base}_{at}" if at else base) not in names
        )
        names.add(name)
        rules.append(Rule.model_validate({"name": name, "view": contract.view, **terms}))

    of_rows = {"action": contract.action, "to": contract.to}
    of_batch = {"action": "fail" if contract.action == "fail" else "warn"}
    keys = [field for field in properties if field.primaryKey]
    keys.sort(key=lambda field: field.primaryKeyPosition or 0)
    for place in _all(properties, ()):
        column = prefix + ".".join(f"`{part}`" for part in place.path)
        stem = "_".join(place.path)
        for kind, check in _conditions(place.property, column):
            add(f"{stem}_{kind}", check=check, **of_rows)
        if contract.batches and place.property.unique and prefix == "" and len(place.path) == 1:
            add(f"{stem}_unique", unique=[place.path[0]], **of_batch)
        if contract.batches:
            for quality in place.property.quality or ():
                for kind, having in _metrics(quality, column):
                    add(f"{stem}_{kind}", having=having, **of_batch)
    if contract.batches:
        if keys and prefix == "":
            add("primary_key", unique=[str(key.name) for key in keys], **of_batch)
        for quality in schema.quality or ():
            for kind, having in _metrics(quality, None):
                add(kind, having=having, **of_batch)
    ddl = ", ".join(f"`{field.name}` {type_of(field)}" for field in properties)
    value = {"value": ("STRUCT",)}
    return ViewContract(Terms(value if prefix else columns), ddl, tuple(rules))


@dataclass(frozen=True)
class _PropertyPath:
    property: SchemaProperty
    path: tuple[str, ...]


def _all(properties: list[SchemaProperty], above: tuple[str, ...]) -> Iterator[_PropertyPath]:
    """Yield properties, and the properties of objects in them."""
    for field in properties:
        path = (*above, str(field.name))
        yield _PropertyPath(field, path)
        if field.logicalType == "object":
            yield from _all(field.properties or [], path)


def _conditions(field: SchemaProperty, column: str) -> Iterator[tuple[str, str]]:
    """Yield the conditions on each row, by what they are about."""
    if field.required or field.primaryKey:
        yield "required", f"{column} IS NOT NULL"
    for option, bound in (field.logicalTypeOptions or {}).items():
        if option in BOUNDS:
            condition = BOUNDS[option].format(column=column, bound=literal(bound))
            yield option, f"{column} IS NULL OR {condition}"
    values = [each.value for each in field.enum or ()]
    if values:
        yield "enum", f"{column} IS NULL OR {column} IN ({', '.join(map(literal, values))})"


def _metrics(quality: DataQuality, column: str | None) -> Iterator[tuple[str, str]]:
    """Yield a condition on a batch for a metric of the standard's library."""
    metric = quality.metric or quality.rule
    if quality.type not in (None, "library") or metric is None:
        return
    asked = quality.arguments or {}
    if metric == "rowCount":
        counted = "count(*)"
    elif column is None:
        if metric != "duplicateValues" or not asked.get("properties"):
            raise ContractError(f"metric {metric!r} is known of properties only")
        keys = ", ".join(f"`{name}`" for name in asked["properties"])
        counted = f"(count(*) - count(DISTINCT struct({keys})))"
    elif metric == "nullValues":
        counted = f"count_if({column} IS NULL)"
    elif metric == "missingValues":
        values = [value for value in asked.get("missingValues", ()) if value is not None]
        listed = f" OR {column} IN ({', '.join(map(literal, values))})" if values else ""
        counted = f"count_if({column} IS NULL{listed})"
    elif metric == "invalidValues":
        valid = []
        if asked.get("validValues"):
            valid.append(f"{column} IN ({', '.join(map(literal, asked['validValues']))})")
        if asked.get("pattern"):
            valid.append(f"{column} RLIKE {literal(asked['pattern'])}")
        if not valid:
            raise ContractError("metric 'invalidValues' needs 'validValues' or 'pattern'")
        counted = f"count_if(NOT ({' AND '.join(valid)}))"
    elif metric == "duplicateValues":
        counted = f"(count({column}) - count(DISTINCT {column}))"
    else:
        raise ContractError(f"metric {metric!r} is not known")
    if quality.unit == "percent":
        counted = f"100.0 * {counted} / count(*)"
    for key, operator in OPERATORS.items():
        bound = getattr(quality, key)
        if bound is not None:
            yield metric, f"{counted} {operator} {literal(bound)}"
    for key, negated in (("mustBeBetween", ""), ("mustNotBeBetween", "NOT ")):
        bounds = getattr(quality, key)
        if bounds is not None:
            yield metric, f"{counted} {negated}BETWEEN {bounds[0]} AND {bounds[1]}"


def literal(value: object) -> str:
    """Return a value as a literal of SQL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def allowed_types(field: SchemaProperty) -> tuple[str, ...]:
    """Return the types of Spark that a property may have; ContractError for an unknown one."""
    if field.logicalType is None:
        raise ContractError(f"property {field.name!r} has no 'logicalType'")
    if field.logicalType not in TYPES:
        raise ContractError(
            f"property {field.name!r}: logicalType {field.logicalType!r} is not known"
        )
    return TYPES[field.logicalType]


def type_of(field: SchemaProperty) -> str:
    """Return the type of a property as DDL."""
    kind = allowed_types(field)[0]
    physical = field.physicalType or ""
    if field.logicalType == "number" and re.fullmatch(DECIMAL, physical):
        return physical.upper()
    if kind == "ARRAY":
        if field.items is None:
            raise ContractError(f"property {field.name!r} is an array without 'items'")
        return f"ARRAY<{type_of(field.items)}>"
    if kind == "STRUCT":
        parts = ", ".join(f"`{part.name}`: {type_of(part)}" for part in field.properties or ())
        if not parts:
            raise ContractError(f"property {field.name!r} is an object without 'properties'")
        return f"STRUCT<{parts}>"
    return kind
