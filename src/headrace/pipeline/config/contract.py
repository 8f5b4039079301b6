# SPDX-License-Identifier: Apache-2.0
"""Conversion of data contracts (ODCS) to the columns and rules of a view.

`required`, bounds, patterns and enumerations become rules about rows. `unique` and quality metrics
become rules about batches. Quality of the types `sql`, `text` and `custom` is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from headrace.pipeline.config.errors import Problem
from headrace.pipeline.config.lines import Lines, format_path
from headrace.pipeline.config.required_columns import RequiredColumns
from headrace.pipeline.config.settings import AmqpSource, Contract, FileSource, Pipeline, Rule

if TYPE_CHECKING:
    from open_data_contract_standard.model import DataQuality, SchemaObject, SchemaProperty

# For each logical type Spark's type in DDL, then the other types that a column may have.
SPARK_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
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
# The condition in SQL for each option of a logical type.
BOUND_CONDITIONS: Final = {
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
METRIC_OPERATORS: Final = {
    "mustBe": "=",
    "mustNotBe": "<>",
    "mustBeGreaterThan": ">",
    "mustBeGreaterOrEqualTo": ">=",
    "mustBeLessThan": "<",
    "mustBeLessOrEqualTo": "<=",
}
NAME_CHARS_MAX: Final = 64  # Characters of the name of a rule.
DECIMAL_PATTERN: Final = r"(?i)decimal\(\s*\d{1,2}\s*,\s*\d{1,2}\s*\)"


class ContractError(ValueError):
    """A contract cannot be read, or has a term that no rule can express."""


@dataclass(frozen=True)
class ViewContract:
    """The contract of a view: its required columns, their DDL, and its rules."""

    required_columns: RequiredColumns
    ddl: str
    rules: tuple[Rule, ...]


def apply_contracts(pipeline: Pipeline, lines: Lines) -> tuple[Pipeline, list[Problem]]:
    """Add the columns and rules of contracts; return the pipeline and the problems found."""
    problems: list[Problem] = []
    rules, sources, required_columns = [*pipeline.rules], dict(pipeline.sources), {}
    rule_contracts: dict[str, int] = {}
    for index, contract in enumerate(pipeline.contracts):
        source = sources.get(contract.view)
        prefix = "value." if isinstance(source, AmqpSource) else ""
        try:
            if isinstance(source, AmqpSource) and "value" not in source.options:
                raise ContractError(f"source {contract.view!r} needs the option 'value'")
            view_contract = read_contract(pipeline.resolve_path(contract.file), contract, prefix)
        except ContractError as error:
            path = ("contracts", index, "file")
            problems.append(Problem(lines.find(path), format_path(path), str(error)))
            continue
        required_columns[contract.view] = view_contract.required_columns
        rules += view_contract.rules
        rule_contracts |= {rule.name: index for rule in view_contract.rules}
        if isinstance(source, AmqpSource) and "valueSchema" not in source.options:
            options = {**source.options, "valueSchema": view_contract.ddl}
            sources[contract.view] = source.model_copy(update={"options": options})
        elif isinstance(source, FileSource) and source.ddl is None:
            sources[contract.view] = source.model_copy(update={"ddl": view_contract.ddl})
    changed_pipeline = replace(
        pipeline,
        sources=sources,
        rules=rules,
        required_columns=required_columns,
        rule_contracts=rule_contracts,
    )
    return changed_pipeline, problems


def read_contract(path: str, contract: Contract, prefix: str = "") -> ViewContract:
    """Read a contract from its file; `prefix` precedes column names in conditions.

    Raises:
        ContractError: the file is not a contract, or lacks the schema.
    """
    try:
        import yaml
        from open_data_contract_standard.model import OpenDataContractStandard
    except ImportError as error:
        raise ContractError(f"contracts need the package {error.name}") from None
    try:
        document = OpenDataContractStandard.from_string(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ContractError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ContractError(f"{path}: no YAML: {str(error).splitlines()[0]}") from None
    except (ValidationError, TypeError) as error:
        first_error = error.errors()[0] if isinstance(error, ValidationError) else None
        fault = (
            ""
            if first_error is None
            else f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"
        )
        raise ContractError(f"{path}: no contract: {fault or error}") from None
    if document.kind != "DataContract":
        raise ContractError(f"{path}: its 'kind' is not DataContract")
    schemas = {schema.name or "": schema for schema in document.schema_ or ()}
    if contract.schema_name is None and len(schemas) != 1:
        raise ContractError(f"{path}: 'schema' chooses one of {', '.join(schemas) or 'none'}")
    schema = schemas.get(contract.schema_name or next(iter(schemas)))
    if schema is None:
        names = ", ".join(schemas) or "none"
        raise ContractError(f"{path}: it has no schema {contract.schema_name!r}, but {names}")
    return _build_view_contract(schema, contract, prefix)


def _build_view_contract(schema: SchemaObject, contract: Contract, prefix: str) -> ViewContract:
    """Return the rules and columns of a schema; rules over batches only if `contract.batches`."""
    properties = schema.properties or []
    for field in properties:
        if not field.name:
            raise ContractError("a property has no name")
    columns = {str(field.name): allowed_types(field) for field in properties}
    rules: list[Rule] = []
    names: set[str] = set()

    def add_rule(kind: str, **terms: object) -> None:
        base = re.sub(r"\W+", "_", f"{contract.view}_{kind}")[: NAME_CHARS_MAX - 4]
        name = next(
            candidate
            for number in range(1000)
            if (candidate := f"{base}_{number}" if number else base) not in names
        )
        names.add(name)
        rules.append(Rule.model_validate({"name": name, "view": contract.view, **terms}))

    row_action = {"action": contract.action, "to": contract.to}
    batch_action = {"action": "fail" if contract.action == "fail" else "warn"}
    keys = [field for field in properties if field.primaryKey]
    keys.sort(key=lambda field: field.primaryKeyPosition or 0)
    for property_path in _property_paths(properties, ()):
        column = prefix + ".".join(f"`{part}`" for part in property_path.path)
        stem = "_".join(property_path.path)
        for kind, check in _row_conditions(property_path.property, column):
            add_rule(f"{stem}_{kind}", check=check, **row_action)
        if (
            contract.batches
            and property_path.property.unique
            and prefix == ""
            and len(property_path.path) == 1
        ):
            add_rule(f"{stem}_unique", unique=[property_path.path[0]], **batch_action)
        if contract.batches:
            for quality in property_path.property.quality or ():
                for kind, having in _quality_conditions(quality, column):
                    add_rule(f"{stem}_{kind}", having=having, **batch_action)
    if contract.batches:
        if keys and prefix == "":
            add_rule("primary_key", unique=[str(key.name) for key in keys], **batch_action)
        for quality in schema.quality or ():
            for kind, having in _quality_conditions(quality, None):
                add_rule(kind, having=having, **batch_action)
    ddl = ", ".join(f"`{field.name}` {ddl_type(field)}" for field in properties)
    value = {"value": ("STRUCT",)}
    return ViewContract(RequiredColumns(value if prefix else columns), ddl, tuple(rules))


@dataclass(frozen=True)
class _PropertyPath:
    """A property of a contract, with the names from the outermost object to it."""

    property: SchemaProperty
    path: tuple[str, ...]


def _property_paths(
    properties: list[SchemaProperty], parents: tuple[str, ...]
) -> Iterator[_PropertyPath]:
    """Yield all properties, including the properties of nested objects."""
    for field in properties:
        path = (*parents, str(field.name))
        yield _PropertyPath(field, path)
        if field.logicalType == "object":
            yield from _property_paths(field.properties or [], path)


def _row_conditions(field: SchemaProperty, column: str) -> Iterator[tuple[str, str]]:
    """Yield the conditions of a property on each row, as pairs of kind and SQL."""
    if field.required or field.primaryKey:
        yield "required", f"{column} IS NOT NULL"
    for option, bound in (field.logicalTypeOptions or {}).items():
        if option in BOUND_CONDITIONS:
            condition = BOUND_CONDITIONS[option].format(column=column, bound=sql_literal(bound))
            yield option, f"{column} IS NULL OR {condition}"
    values = [choice.value for choice in field.enum or ()]
    if values:
        yield "enum", f"{column} IS NULL OR {column} IN ({', '.join(map(sql_literal, values))})"


def _quality_conditions(quality: DataQuality, column: str | None) -> Iterator[tuple[str, str]]:
    """Yield the conditions of a metric on a batch, as pairs of the metric's name and SQL."""
    metric = quality.metric or quality.rule
    if quality.type not in (None, "library") or metric is None:
        return
    arguments = quality.arguments or {}
    if metric == "rowCount":
        measure = "count(*)"
    elif column is None:
        if metric != "duplicateValues" or not arguments.get("properties"):
            raise ContractError(f"metric {metric!r} applies to properties only")
        keys = ", ".join(f"`{name}`" for name in arguments["properties"])
        measure = f"(count(*) - count(DISTINCT struct({keys})))"
    elif metric == "nullValues":
        measure = f"count_if({column} IS NULL)"
    elif metric == "missingValues":
        values = [value for value in arguments.get("missingValues", ()) if value is not None]
        alternatives = f" OR {column} IN ({', '.join(map(sql_literal, values))})" if values else ""
        measure = f"count_if({column} IS NULL{alternatives})"
    elif metric == "invalidValues":
        conditions = []
        if arguments.get("validValues"):
            conditions.append(
                f"{column} IN ({', '.join(map(sql_literal, arguments['validValues']))})"
            )
        if arguments.get("pattern"):
            conditions.append(f"{column} RLIKE {sql_literal(arguments['pattern'])}")
        if not conditions:
            raise ContractError("metric 'invalidValues' needs 'validValues' or 'pattern'")
        measure = f"count_if(NOT ({' AND '.join(conditions)}))"
    elif metric == "duplicateValues":
        measure = f"(count({column}) - count(DISTINCT {column}))"
    else:
        raise ContractError(f"metric {metric!r} is not known")
    if quality.unit == "percent":
        measure = f"100.0 * {measure} / count(*)"
    for key, operator in METRIC_OPERATORS.items():
        bound = getattr(quality, key)
        if bound is not None:
            yield metric, f"{measure} {operator} {sql_literal(bound)}"
    for key, negated in (("mustBeBetween", ""), ("mustNotBeBetween", "NOT ")):
        bounds = getattr(quality, key)
        if bounds is not None:
            yield metric, f"{measure} {negated}BETWEEN {bounds[0]} AND {bounds[1]}"


def sql_literal(value: object) -> str:
    """Return a value as an SQL literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def allowed_types(field: SchemaProperty) -> tuple[str, ...]:
    """Return the allowed Spark types of a property.

    Raises:
        ContractError: its logical type is missing or unknown.
    """
    if field.logicalType is None:
        raise ContractError(f"property {field.name!r} has no 'logicalType'")
    if field.logicalType not in SPARK_TYPES:
        raise ContractError(
            f"property {field.name!r}: logicalType {field.logicalType!r} is not known"
        )
    return SPARK_TYPES[field.logicalType]


def ddl_type(field: SchemaProperty) -> str:
    """Return the DDL type of a property."""
    spark_type = allowed_types(field)[0]
    physical = field.physicalType or ""
    if field.logicalType == "number" and re.fullmatch(DECIMAL_PATTERN, physical):
        return physical.upper()
    if spark_type == "ARRAY":
        if field.items is None:
            raise ContractError(f"property {field.name!r} is an array without 'items'")
        return f"ARRAY<{ddl_type(field.items)}>"
    if spark_type == "STRUCT":
        fields = ", ".join(f"`{inner.name}`: {ddl_type(inner)}" for inner in field.properties or ())
        if not fields:
            raise ContractError(f"property {field.name!r} is an object without 'properties'")
        return f"STRUCT<{fields}>"
    return spark_type
