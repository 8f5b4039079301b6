# SPDX-License-Identifier: Apache-2.0
"""Schemas as text: the column list or the type that people write for Spark, without asking Spark.

Spark's own parser lives in the JVM, which neither the process that plans a data source nor the
command line has. This one takes the types that a message's body can be decoded into::

    id BIGINT NOT NULL COMMENT 'the order', items ARRAY<STRUCT<sku: STRING, price: DECIMAL(10, 2)>>
"""

from __future__ import annotations

import re
from typing import Final

from headrace.columns.schema.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

DDL_LENGTH_MAX: Final = 1 << 20  # Characters.
DEPTH_MAX: Final = 64  # The depth of types within types.
PRECISION_MAX: Final = 38

SIMPLE: Final[dict[str, type[DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}
_DECIMAL: Final = ("decimal", "dec", "numeric")
_SIZED_TEXT: Final = ("char", "character", "varchar")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'"
    r'|"(?:[^"\\]|\\.)*")|(?P<mark>[<>(),:]))'
)


class SchemaTextError(ValueError):
    """A schema that cannot be understood; the text says where."""


def parse_schema(text: str) -> DataType:
    """The type that a text describes: a list of columns, or one struct, array or map.

    SchemaTextError when it is neither, or has a type that a body cannot be decoded into.
    """
    if len(text) > DDL_LENGTH_MAX:
        raise SchemaTextError(f"has more than {DDL_LENGTH_MAX} characters")
    parser = _Parser(text)
    if re.match(r"\s*(?:struct|array|map)\s*<", text, re.IGNORECASE):
        parsed = parser.type_of("the schema", 0)
    else:
        parsed = StructType(parser.fields(0))
    parser.finish()
    return parsed


class _Parser:
    """Tokens of one text, taken from the left."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.symbol = ""
        self.kind = ""
        self._advance()

    def finish(self) -> None:
        if self.kind:
            raise self._unexpected("the end or a comma")

    def fields(self, depth: int) -> list[StructField]:
        """Fields, as long as commas follow."""
        fields: list[StructField] = []
        seen: set[str] = set()
        while True:
            name = self._name()
            if name.lower() in seen:
                raise SchemaTextError(f"names the column {name!r} twice")
            seen.add(name.lower())
            if self.symbol == ":" and self.kind == "mark":
                self._advance()
            kind = self.type_of(f"column {name!r}", depth)
            self._skip_constraints()
            fields.append(StructField(name, kind))
            if self.kind == "mark" and self.symbol == ",":
                self._advance()
                continue
            return fields

    def type_of(self, what: str, depth: int) -> DataType:
        """The type that stands here."""
        if depth > DEPTH_MAX:
            raise SchemaTextError(f"nests types deeper than {DEPTH_MAX}")
        if self.kind != "word":
            raise self._unexpected(f"the type of {what}")
        word = self.symbol.lower()
        self._advance()
        if word in SIMPLE:
            return SIMPLE[word]()
        if word in _DECIMAL:
            return self._decimal(what)
        if word in _SIZED_TEXT:
            self._numbers(what)
            return StringType()
        if word == "array":
            self._mark("<")
            element = self.type_of(what, depth + 1)
            self._mark(">")
            return ArrayType(element)
        if word == "map":
            self._mark("<")
            key = self.type_of(what, depth + 1)
            if not isinstance(key, StringType):
                raise SchemaTextError(f"gives {what} a map whose keys are no STRING")
            self._mark(",")
            value = self.type_of(what, depth + 1)
            self._mark(">")
            return MapType(key, value)
        if word == "struct":
            self._mark("<")
            fields = self.fields(depth + 1)
            self._mark(">")
            return StructType(fields)
        raise SchemaTextError(
            f"gives {what} the type {word.upper()!r}; the types are "
            f"{', '.join(sorted(name.upper() for name in SIMPLE))}, DECIMAL(p, s), ARRAY<...>, "
            "MAP<STRING, ...> and STRUCT<...>"
        )

    def _decimal(self, what: str) -> DecimalType:
        numbers = self._numbers(what) if self.symbol == "(" else []
        precision = numbers[0] if numbers else 10
        scale = numbers[1] if len(numbers) > 1 else 0
        if not 1 <= precision <= PRECISION_MAX or scale > precision or len(numbers) > 2:
            raise SchemaTextError(
                f"gives {what} an invalid DECIMAL: the precision is 1 to {PRECISION_MAX}, and the "
                "scale is at most the precision"
            )
        return DecimalType(precision, scale)

    def _numbers(self, what: str) -> list[int]:
        """Parse whole numbers in parentheses."""
        self._mark("(")
        numbers = []
        while True:
            if not (self.symbol.isascii() and self.symbol.isdigit() and len(self.symbol) < 10):
                raise self._unexpected(f"a number for the type of {what}")
            numbers.append(int(self.symbol))
            self._advance()
            if self.symbol != ",":
                break
            self._advance()
        self._mark(")")
        return numbers

    def _skip_constraints(self) -> None:
        """NOT NULL, which no decoder can promise, and COMMENT 'text'."""
        if self.kind == "word" and self.symbol.lower() == "not":
            self._advance()
            if self.symbol.lower() != "null":
                raise self._unexpected("NULL")
            self._advance()
        if self.kind == "word" and self.symbol.lower() == "comment":
            self._advance()
            if self.kind != "text":
                raise self._unexpected("a text in quotes")
            self._advance()

    def _name(self) -> str:
        if self.kind == "quoted":
            name = self.symbol[1:-1].replace("``", "`")
        elif self.kind == "word":
            name = self.symbol
        else:
            raise self._unexpected("the name of a column")
        self._advance()
        return name

    def _mark(self, mark: str) -> None:
        if self.kind != "mark" or self.symbol != mark:
            raise self._unexpected(repr(mark))
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].strip()
            if rest:
                raise SchemaTextError(f"has {rest[:20]!r} where nothing like it can stand")
            self.symbol = self.kind = ""
            return
        self.at = match.end()
        self.kind = match.lastgroup or ""
        self.symbol = match[self.kind]

    def _unexpected(self, expected: str) -> SchemaTextError:
        before = self.text[: self.at - len(self.symbol)].rstrip()[-30:]
        got = repr(self.symbol) if self.kind else "its end"
        after = f" after {before!r}" if before else ""
        return SchemaTextError(f"has {got}{after} instead of {expected}")
