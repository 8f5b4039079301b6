# SPDX-License-Identifier: Apache-2.0
"""A parser of schemas in Spark's DDL: a list of columns, or one type.

Spark's own parser runs in the JVM, which neither the command line nor the process that plans a data
source has. This parser accepts the types to which a body can be decoded::

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
DEPTH_MAX: Final = 64  # The maximum depth of nested types.
PRECISION_MAX: Final = 38

SIMPLE_TYPES: Final[dict[str, type[DataType]]] = {
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
    """The text of a schema is invalid; the message has the position and the expected text."""


def parse_schema(text: str) -> DataType:
    """Return the type that a text describes: a list of columns, or one struct, array or map.

    Raises:
        SchemaTextError: the text is not a schema, or has a type to which a body cannot be decoded.
    """
    if len(text) > DDL_LENGTH_MAX:
        raise SchemaTextError(f"has more than {DDL_LENGTH_MAX} characters")
    parser = _Parser(text)
    if re.match(r"\s*(?:struct|array|map)\s*<", text, re.IGNORECASE):
        parsed = parser.parse_type("the schema", 0)
    else:
        parsed = StructType(parser.parse_fields(0))
    parser.expect_end()
    return parsed


class _Parser:
    """A recursive-descent parser of one text.

    `symbol` is the current token. `kind` is its kind, a group of `_TOKEN`, or "" at the end.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.symbol = ""
        self.kind = ""
        self._advance()

    def expect_end(self) -> None:
        """Raise SchemaTextError if there are further tokens."""
        if self.kind:
            raise self._unexpected_error("the end or a comma")

    def parse_fields(self, depth: int) -> list[StructField]:
        """Parse fields separated by commas."""
        fields: list[StructField] = []
        names: set[str] = set()
        while True:
            name = self._parse_name()
            if name.lower() in names:
                raise SchemaTextError(f"names the column {name!r} twice")
            names.add(name.lower())
            if self.symbol == ":" and self.kind == "mark":
                self._advance()
            kind = self.parse_type(f"column {name!r}", depth)
            self._skip_constraints()
            fields.append(StructField(name, kind))
            if self.kind == "mark" and self.symbol == ",":
                self._advance()
                continue
            return fields

    def parse_type(self, subject: str, depth: int) -> DataType:
        """Parse the type at the current token; errors name it as the type of `subject`."""
        if depth > DEPTH_MAX:
            raise SchemaTextError(f"nests types deeper than {DEPTH_MAX}")
        if self.kind != "word":
            raise self._unexpected_error(f"the type of {subject}")
        word = self.symbol.lower()
        self._advance()
        if word in SIMPLE_TYPES:
            return SIMPLE_TYPES[word]()
        if word in _DECIMAL:
            return self._parse_decimal(subject)
        if word in _SIZED_TEXT:
            self._parse_numbers(subject)
            return StringType()
        if word == "array":
            self._expect_mark("<")
            element = self.parse_type(subject, depth + 1)
            self._expect_mark(">")
            return ArrayType(element)
        if word == "map":
            self._expect_mark("<")
            key = self.parse_type(subject, depth + 1)
            if not isinstance(key, StringType):
                raise SchemaTextError(f"gives {subject} a map whose keys are no STRING")
            self._expect_mark(",")
            value = self.parse_type(subject, depth + 1)
            self._expect_mark(">")
            return MapType(key, value)
        if word == "struct":
            self._expect_mark("<")
            fields = self.parse_fields(depth + 1)
            self._expect_mark(">")
            return StructType(fields)
        names = ", ".join(sorted(name.upper() for name in SIMPLE_TYPES))
        raise SchemaTextError(
            f"gives {subject} the type {word.upper()!r}; the types are "
            f"{names}, DECIMAL(p, s), ARRAY<...>, MAP<STRING, ...> and STRUCT<...>"
        )

    def _parse_decimal(self, subject: str) -> DecimalType:
        numbers = self._parse_numbers(subject) if self.symbol == "(" else []
        precision = numbers[0] if numbers else 10
        scale = numbers[1] if len(numbers) > 1 else 0
        if not 1 <= precision <= PRECISION_MAX or scale > precision or len(numbers) > 2:
            raise SchemaTextError(
                f"gives {subject} an invalid DECIMAL: the precision is 1 to {PRECISION_MAX}, and "
                "the scale is at most the precision"
            )
        return DecimalType(precision, scale)

    def _parse_numbers(self, subject: str) -> list[int]:
        """Parse whole numbers in parentheses, separated by commas."""
        self._expect_mark("(")
        numbers = []
        while True:
            if not (self.symbol.isascii() and self.symbol.isdigit() and len(self.symbol) < 10):
                raise self._unexpected_error(f"a number for the type of {subject}")
            numbers.append(int(self.symbol))
            self._advance()
            if self.symbol != ",":
                break
            self._advance()
        self._expect_mark(")")
        return numbers

    def _skip_constraints(self) -> None:
        """Skip NOT NULL, which a decoder cannot guarantee, and COMMENT 'text'."""
        if self.kind == "word" and self.symbol.lower() == "not":
            self._advance()
            if self.symbol.lower() != "null":
                raise self._unexpected_error("NULL")
            self._advance()
        if self.kind == "word" and self.symbol.lower() == "comment":
            self._advance()
            if self.kind != "text":
                raise self._unexpected_error("a text in quotes")
            self._advance()

    def _parse_name(self) -> str:
        if self.kind == "quoted":
            name = self.symbol[1:-1].replace("``", "`")
        elif self.kind == "word":
            name = self.symbol
        else:
            raise self._unexpected_error("the name of a column")
        self._advance()
        return name

    def _expect_mark(self, mark: str) -> None:
        if self.kind != "mark" or self.symbol != mark:
            raise self._unexpected_error(repr(mark))
        self._advance()

    def _advance(self) -> None:
        """Move to the next token."""
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            remaining = self.text[self.position :].strip()
            if remaining:
                raise SchemaTextError(f"has {remaining[:20]!r} where nothing like it can stand")
            self.symbol = self.kind = ""
            return
        self.position = match.end()
        self.kind = match.lastgroup or ""
        self.symbol = match[self.kind]

    def _unexpected_error(self, expected: str) -> SchemaTextError:
        before = self.text[: self.position - len(self.symbol)].rstrip()[-30:]
        actual = repr(self.symbol) if self.kind else "its end"
        after = f" after {before!r}" if before else ""
        return SchemaTextError(f"has {actual}{after} instead of {expected}")
