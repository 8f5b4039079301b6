# SPDX-License-Identifier: Apache-2.0
"""The grammar of selectors, and its parser.

Keywords are case-insensitive and never identifiers. An identifier may have dots, and any characters
between double quotes. The builder decides which parts are conditions and which are values, since by
the grammar ``(a)`` may be either.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from headrace.model.selector.build import Builder, Evaluate, Node, SelectorError

GRAMMAR = r"""
?start: any
?any: all (_OR all)*
?all: inverse (_AND inverse)*
?inverse: NOT inverse -> inverse
    | condition
?condition: sum
    | sum COMPARE sum -> compare
    | sum _BETWEEN sum _AND sum -> between
    | sum NOT _BETWEEN sum _AND sum -> not_between
    | sum _IN "(" constant ("," constant)* ")" -> among
    | sum NOT _IN "(" constant ("," constant)* ")" -> not_among
    | sum _LIKE string [_ESCAPE string] -> like
    | sum NOT _LIKE string [_ESCAPE string] -> not_like
    | sum _IS _NULL -> null
    | sum _IS NOT _NULL -> not_null
?sum: product (SIGN product)*
?product: signed (TIMES signed)*
?signed: SIGN signed -> sign
    | atom
?atom: constant_atom
    | NAME -> name
    | QUOTED -> quoted
    | "(" any ")"
?constant: constant_atom
    | SIGN number -> sign
?constant_atom: number
    | string
    | TRUE -> true
    | FALSE -> false
?number: FLOAT -> approximate
    | INTEGER -> exact
string: STRING

_AND.2: /and(?![\w$.])/i
_OR.2: /or(?![\w$.])/i
NOT.2: /not(?![\w$.])/i
_BETWEEN.2: /between(?![\w$.])/i
_IN.2: /in(?![\w$.])/i
_LIKE.2: /like(?![\w$.])/i
_ESCAPE.2: /escape(?![\w$.])/i
_IS.2: /is(?![\w$.])/i
_NULL.2: /null(?![\w$.])/i
TRUE.2: /true(?![\w$.])/i
FALSE.2: /false(?![\w$.])/i
COMPARE: /<>|<=|>=|!=|[=<>]/
SIGN: /[+-]/
TIMES: /[*\/%]/
FLOAT.1: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
INTEGER: /(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)[lL]?/
NAME: /[^\W\d][\w$.]*|\$[\w$.]*/
QUOTED: /"(?:[^"]|"")+"/
STRING: /'(?:[^']|'')*'/
%ignore /[ \t\r\n\f]+/
"""  # noqa: E501 - one terminal is one line.


Part: TypeAlias = Any  # A Token or a Node, as the rule of the grammar has it.


class Actions(Transformer[Token, Node]):
    """Builds a node for each rule of the grammar."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self._build = Builder()

    def any(self, nodes: list[Node]) -> Node:
        return self._build.disjunction(nodes)

    def all(self, nodes: list[Node]) -> Node:
        return self._build.conjunction(nodes)

    def inverse(self, parts: list[Part]) -> Node:
        return self._build.inverse(parts[1], token_index(parts[0]))

    def compare(self, parts: list[Part]) -> Node:
        return self._build.compare(parts[0], str(parts[1]), parts[2])

    def between(self, parts: list[Node]) -> Node:
        return self._build.between(parts[0], parts[1], parts[2])

    def not_between(self, parts: list[Part]) -> Node:
        return self._inverse(self.between([parts[0], *parts[2:]]))

    def among(self, parts: list[Node]) -> Node:
        return self._build.among(parts[0], parts[1:])

    def not_among(self, parts: list[Part]) -> Node:
        return self._inverse(self.among([parts[0], *parts[2:]]))

    def like(self, parts: list[Node]) -> Node:
        return self._build.like(parts[0], parts[1], parts[2] if len(parts) > 2 else None)

    def not_like(self, parts: list[Part]) -> Node:
        return self._inverse(self.like([parts[0], *parts[2:]]))

    def null(self, parts: list[Node]) -> Node:
        return self._build.null(parts[0])

    def not_null(self, parts: list[Part]) -> Node:
        return self._inverse(self.null(parts[:1]))

    def sum(self, parts: list[Part]) -> Node:
        return self._build.arithmetic(parts[0], pairs(parts))

    def product(self, parts: list[Part]) -> Node:
        return self._build.arithmetic(parts[0], pairs(parts))

    def sign(self, parts: list[Part]) -> Node:
        return self._build.sign(str(parts[0]), parts[1], token_index(parts[0]))

    def name(self, parts: list[Token]) -> Node:
        return self._build.identifier(str(parts[0]), token_index(parts[0]))

    def quoted(self, parts: list[Token]) -> Node:
        return self._build.identifier(parts[0][1:-1].replace('""', '"'), token_index(parts[0]))

    def true(self, parts: list[Token]) -> Node:
        return self._build.literal(True, token_index(parts[0]))

    def false(self, parts: list[Token]) -> Node:
        return self._build.literal(False, token_index(parts[0]))

    def string(self, parts: list[Token]) -> Node:
        return self._build.literal(parts[0][1:-1].replace("''", "'"), token_index(parts[0]))

    def approximate(self, parts: list[Token]) -> Node:
        return self._build.literal(float(parts[0].rstrip("fFdD")), token_index(parts[0]))

    def exact(self, parts: list[Token]) -> Node:
        digits = parts[0].rstrip("lL").lower()
        base = 10
        if digits[:2] in ("0x", "0b"):
            base = 16 if digits[1] == "x" else 2
        elif digits[0] == "0":
            base = 8
        try:
            value = int(digits, base)
        except ValueError:
            raise SelectorError(
                f"no octal number {str(parts[0])!r}", token_index(parts[0])
            ) from None
        return self._build.literal(value, token_index(parts[0]))

    def _inverse(self, node: Node) -> Node:
        return self._build.inverse(node, node.offset)


def token_index(token: Token) -> int:
    """Return the index of a token."""
    return token.start_pos or 0


def pairs(parts: list[Part]) -> list[tuple[str, Node]]:
    """Return the operators and operands after the first operand."""
    return [(str(parts[i]), parts[i + 1]) for i in range(1, len(parts), 2)]


@cache
def parser() -> Lark:
    """Return the parser, made on first use in some milliseconds."""
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Actions())


def parse(text: str) -> tuple[frozenset[str], Evaluate]:
    """Return the names that a selector reads, and its closure.

    Raises:
        SelectorError: the text is not a selector.
    """
    try:
        node: Part = parser().parse(text)
    except UnexpectedToken as error:
        if error.token.type == "$END":
            raise SelectorError("it ends too early", len(text)) from None
        raise SelectorError(
            f"unexpected {str(error.token)[:32]!r}", token_index(error.token)
        ) from None
    except UnexpectedCharacters as error:
        position: int = error.pos_in_stream  # type: ignore[assignment] # Known to a text's lexer.
        if text[position] in "'\"":
            raise SelectorError(f"no end of what begins with {text[position]}", position) from None
        raise SelectorError(f"unexpected {text[position]!r}", position) from None
    return Builder().finish(node)
