# SPDX-License-Identifier: Apache-2.0
"""The selector language: three-valued logic, the examples of JMS, and whatever else is written."""

import math
import re
import time
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.model.errors import InvalidArgument
from headrace.model.selector import compile_selector, like
from headrace.model.selector.build import DEPTH_MAX, LENGTH_MAX, LIST_MAX, TERMS_MAX
from headrace.model.selector.like import TEXT_MAX

NO, YES, UNKNOWN = False, True, None
WAYS = {"t": "TRUE", "f": "FALSE", "u": "missing = 1"}
TRUTH = {"t": YES, "f": NO, "u": UNKNOWN}


def truth(text, **values):
    return compile_selector(text).truth(values)


def flaw(text):
    with pytest.raises(InvalidArgument, match=r"^invalid selector: ") as caught:
        compile_selector(text)
    return caught.value.text.removeprefix("invalid selector: ")


@pytest.mark.parametrize(
    ("operator", "table"),
    [
        ("AND", "tt=t tf=f tu=u ft=f ff=f fu=f ut=u uf=f uu=u"),
        ("OR", "tt=t tf=t tu=t ft=t ff=f fu=u ut=t uf=u uu=u"),
    ],
)
def test_three_valued_tables(operator, table):
    for row in table.split():
        text = f"({WAYS[row[0]]}) {operator} ({WAYS[row[1]]})"
        assert truth(text) is TRUTH[row[3]], text
        assert compile_selector(text).matches({}) is (row[3] == "t")


def test_not_of_what_is_unknown():
    assert truth("NOT TRUE") is NO
    assert truth("NOT FALSE") is YES
    assert truth("NOT missing = 1") is UNKNOWN
    assert truth("NOT missing") is UNKNOWN
    assert truth("missing IS NULL") is YES
    assert truth("missing IS NOT NULL") is NO
    assert truth("NOT here IS NULL", here="") is YES


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        # Of JMS 1.1 and 2.0, 3.8.1.1.
        (
            "JMSType = 'car' AND color = 'blue' AND weight > 2500",
            {"JMSType": "car", "color": "blue", "weight": 2501},
            YES,
        ),
        (
            "JMSType = 'car' AND color = 'blue' AND weight > 2500",
            {"JMSType": "car", "color": "blue", "weight": 2500},
            NO,
        ),
        ("age BETWEEN 15 AND 19", {"age": 15}, YES),
        ("age BETWEEN 15 AND 19", {"age": 19.0}, YES),
        ("age BETWEEN 15 AND 19", {"age": 20}, NO),
        ("age BETWEEN 15 AND 19", {}, UNKNOWN),
        ("age NOT BETWEEN 15 AND 19", {"age": 14}, YES),
        ("age NOT BETWEEN 15 AND 19", {"age": 16}, NO),
        ("age NOT BETWEEN 15 AND 19", {}, UNKNOWN),
        ("Country IN ('UK', 'US', 'France')", {"Country": "UK"}, YES),
        ("Country IN ('UK', 'US', 'France')", {"Country": "Peru"}, NO),
        ("Country NOT IN ('UK', 'US', 'France')", {"Country": "Peru"}, YES),
        ("Country NOT IN ('UK', 'US', 'France')", {"Country": "US"}, NO),
        ("Country IN ('UK', 'US', 'France')", {}, UNKNOWN),
        ("Country NOT IN ('UK', 'US', 'France')", {}, UNKNOWN),
        ("phone LIKE '12%3'", {"phone": "123"}, YES),
        ("phone LIKE '12%3'", {"phone": "12993"}, YES),
        ("phone LIKE '12%3'", {"phone": "1234"}, NO),
        ("word LIKE 'l_se'", {"word": "lose"}, YES),
        ("word LIKE 'l_se'", {"word": "loose"}, NO),
        ("underscored LIKE '\\_%' ESCAPE '\\'", {"underscored": "_foo"}, YES),
        ("underscored LIKE '\\_%' ESCAPE '\\'", {"underscored": "bar"}, NO),
        ("phone NOT LIKE '12%3'", {"phone": "1234"}, YES),
        ("phone NOT LIKE '12%3'", {"phone": "123"}, NO),
        ("phone LIKE '12%3'", {}, UNKNOWN),
        ("phone NOT LIKE '12%3'", {}, UNKNOWN),
        ("prop_name IS NULL", {}, YES),
        ("prop_name IS NOT NULL", {"prop_name": 0}, YES),
        ("trans = 'that''s'", {"trans": "that's"}, YES),
        # Exact and approximate numbers, in all the forms of Java.
        ("a = 57 AND b = -957 AND c = +62", {"a": 57, "b": -957, "c": 62}, YES),
        ("a = 7E3 AND b = -57.9E2 AND c = 7. AND d = -95.7 AND e = +6.2",
         {"a": 7000, "b": -5790, "c": 7, "d": -95.7, "e": 6.2}, YES),
        ("a = 0x1F AND b = 017 AND c = 0B101 AND d = 12L AND e = .5f AND f = 1d AND g = 1e-2F",
         {"a": 31, "b": 15, "c": 5, "d": 12, "e": 0.5, "f": 1, "g": 0.01}, YES),
        ("a = -9223372036854775808 AND b = 9223372036854775807",
         {"a": -(2**63), "b": 2**63 - 1}, YES),
    ],
)  # fmt: skip
def test_the_examples_of_jms(text, values, expected):
    assert truth(text, **values) is expected


def test_keywords_are_of_either_case_and_names_are_not():
    text = "a between 1 And 2 aNd b lIkE 'x%' oR nOt (c iN ('1') and d Is NoT nUlL) or tRuE = e"
    assert truth(text, a=1, b="xy") is YES
    assert truth("Red = 1", red=1) is UNKNOWN
    assert truth("android = 1 AND nota = 2 AND $x = 3 AND or_ = 4 AND in$ = 5 AND is.it = 6",
                 android=1, nota=2, **{"$x": 3, "or_": 4, "in$": 5, "is.it": 6}) is YES  # fmt: skip


def test_identifiers_may_be_any_between_double_quotes():
    assert truth('"x-tenant" = 1 AND "and" = 2 AND "a""b" = 3',
                 **{"x-tenant": 1, "and": 2, 'a"b': 3}) is YES  # fmt: skip
    assert compile_selector('"x-tenant" = 1 AND größe > 2').names == {"x-tenant", "größe"}


@pytest.mark.parametrize("text", ["a = 'x'", "a <> 'x'", "a = 1", "a <> 1", "a < 1", "a = TRUE"])
def test_unlike_types_never_compare(text):
    for value in (True, False, "1", "y" * 3, 0.5, 7, b"\xff", {"x": 1}, [1], ("x",)):
        kind = (
            "'x'" if isinstance(value, str)
            else "TRUE" if isinstance(value, bool)
            else "1" if isinstance(value, (int, float))
            else "nothing"
        )  # fmt: skip
        if not text.endswith(kind):
            assert truth(text, a=value) is NO, value


def test_a_value_is_what_any_version_makes_of_it():
    class Wide(int):
        WIRE_TYPE = "unsignedint"

    assert truth("a = 7", a=Wide(7)) is YES
    assert truth("a = 0.25", a=Decimal("0.25")) is YES
    assert truth("a = 'text'", a=b"text") is YES
    assert truth("a = 1700000000000", a=datetime.fromtimestamp(1700000000, UTC)) is YES
    assert truth("a IS NULL", a=b"\xff") is NO
    assert truth("a = b", a=[1], b=[1]) is NO
    assert truth("a IN (1, -2.5, 'x', TRUE)", a=-2.5) is YES
    assert truth("a IN (1, 'x')", a=True) is NO
    assert truth("a", a=True) is YES
    assert truth("a", a="true") is UNKNOWN
    assert truth("NOT a", a="true") is UNKNOWN


def test_arithmetic():
    assert truth("a + 2 * 3 - 4 / 2 = 8", a=4) is YES
    assert truth("(a + 2) * 3 = 18", a=4) is YES
    assert truth("-a < -3 AND - (a) = -4 AND +a = 4", a=4) is YES
    assert truth("7 / 2 = 3 AND -7 / 2 = -3 AND 7 % -2 = 1 AND -7 % 2 = -1") is YES
    assert truth("7 / 2. = 3.5 AND 7.5 % 2 = 1.5") is YES
    assert truth("a / 0 = 1 OR a % 0 = 1 OR a / 0.0 = 1", a=4) is UNKNOWN
    assert truth("a + 1 > 0", a=2**63 - 1) is UNKNOWN
    assert truth("a * a * a * a > 0", a=2**62) is UNKNOWN
    assert truth("-a > 0", a=-(2**63)) is UNKNOWN
    assert truth("a + 1 > 0", a="x") is UNKNOWN
    assert truth("a + 1 > 0") is UNKNOWN
    assert truth("a + 1.5 > b", a=2**63 - 1, b=1) is YES
    assert truth("a * 2 <> a", a=math.nan) is YES
    assert truth("1e308 * 10 > 1e308") is YES


@pytest.mark.parametrize(
    ("pattern", "like", "unlike"),
    [
        ("'%'", ["", "x", "a\nb"], []),
        ("''", [""], ["x"]),
        ("'a.c'", ["a.c"], ["abc"]),
        ("'a%'", ["a", "a%"], ["ba", "A"]),
        ("'%a'", ["a", "%a"], ["ab"]),
        ("'%a%'", ["a", "xay"], ["b"]),
        ("'%%a%%'", ["a", "xay"], ["b"]),
        ("'a%c%e'", ["ace", "abcde", "a\nc\ne"], ["ae"]),
        ("'___'", ["äöü", "a\nb", "\U0001f600xy"], ["ab", "abcd"]),
        ("'100!%' ESCAPE '!'", ["100%"], ["1000"]),
        ("'a!!b!_' ESCAPE '!'", ["a!b_"], ["a!!b_", "a!bc"]),
        ("'(.*)[a-z]$'", ["(.*)[a-z]$"], ["abc"]),
    ],
)
def test_like(pattern, like, unlike):
    selector = compile_selector(f"a LIKE {pattern}")
    for value in like:
        assert selector.matches({"a": value}), value
    for value in unlike:
        assert selector.truth({"a": value}) is NO, value
    assert selector.truth({"a": 5}) is NO
    assert selector.truth({"a": "\ud800"}) in (YES, NO)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends too early at position 1"),
        ("a =", "it ends too early at position 4"),
        ("(a = 1", "it ends too early at position 7"),
        ("a = 1 = 2", "unexpected '=' at position 7"),
        ("a = 1)", "unexpected ')' at position 6"),
        ("a ~ 3", "unexpected '~' at position 3"),
        ("and = 2", "unexpected 'and' at position 1"),
        ("a IN ()", "unexpected ')' at position 7"),
        ("a IN (b)", "unexpected 'b' at position 7"),
        ("a = 'x", "no end of what begins with ' at position 5"),
        ('"x = 1', 'no end of what begins with " at position 1'),
        ("5", "a number where a condition must be at position 1"),
        ("a AND 'x'", "a string where a condition must be at position 7"),
        ("a = 1 + TRUE", "a condition where a number must be at position 9"),
        ("a > 'x'", "a string has no order: at position 5"),
        ("1 = 'x'", "a string is never a number: at position 5"),
        ("a = 09", "no octal number '09' at position 5"),
        ("a = 9223372036854775808", "a number that is too large at position 5"),
        ("a = - -9223372036854775808", "a number that is too large at position 5"),
        ("a = 1e999", "a number that is too large at position 5"),
        ("5 IN (1)", "only an identifier is IN a list: at position 1"),
        ("'x' LIKE 'x'", "only an identifier is LIKE a pattern: at position 1"),
        ("a + 1 IS NULL", "only an identifier IS NULL or not: at position 1"),
        ("a LIKE 'x' ESCAPE ''", "an ESCAPE that is not one character at position 19"),
        ("a LIKE 'x!' ESCAPE '!'", "a pattern that ends with its ESCAPE at position 8"),
        ("NOT " * (DEPTH_MAX + 1) + "a", f"nesting deeper than {DEPTH_MAX} at position 5"),
        (
            " OR ".join(["a=1"] * (TERMS_MAX // 2 + 1)),
            f"more than {TERMS_MAX} operators at position 1",
        ),
        (
            f"a IN ({','.join(['1'] * (LIST_MAX + 1))})",
            f"a list of more than {LIST_MAX} values at position {7 + 2 * LIST_MAX}",
        ),
    ],
)
def test_what_is_no_selector_is_refused_with_its_place(text, why):
    assert flaw(text) == why


def test_a_selector_is_not_longer_than_the_limit():
    assert truth("a = 1" + " " * (LENGTH_MAX - 5), a=1) is YES
    assert (
        flaw("a = 1" + " " * (LENGTH_MAX - 4)) == f"{LENGTH_MAX + 1} characters are more than 4096"
    )


def test_parentheses_cost_no_depth():
    assert truth("(" * 2000 + "a" + ")" * 2000, a=True) is YES


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%a" * 1000 + "%b", "a" * TEXT_MAX),
        ("%a" + "_" * 4000, "a" * TEXT_MAX),
        ("%" + "a_" * 1900 + "b%", "a" * TEXT_MAX),
        ("%" + "a_" * 1900 + "b%", ("a" * 3000 + "x") * 21),
        ("%" + "%".join(["a_a_a_b"] * 500) + "%", "a" * 60_000 + "axaxaxb" * 500),
        ("%" + "_".join(map(chr, range(0x4E00, 0x5500))) + "z%", "一x" * (TEXT_MAX // 2)),
    ],
)
def test_patterns_that_explode_elsewhere_take_little_time(pattern, text):
    """A finite automaton of these takes seconds, or the memory of very many states."""
    selector = compile_selector(f"a LIKE '{pattern}'")
    began = time.process_time()
    assert selector.truth({"a": text}) in (YES, NO)
    assert time.process_time() - began < 0.25


def test_a_text_may_be_too_long_to_be_compared():
    text = "a" * (TEXT_MAX + 1)
    assert truth("a LIKE '%aa_a%'", a=text) is UNKNOWN
    assert truth("a LIKE 'a%' AND a LIKE '%a' AND NOT a LIKE '%b'", a=text) is YES


@settings(max_examples=300, deadline=None)
@example("%a_b%", "aabaxb", 1)
@given(
    st.text("ab_%é\U0001f600", max_size=9), st.text("abé\U0001f600", max_size=14), st.integers(1, 2)
)
def test_like_is_what_an_expression_says(pattern, text, tries):
    """Place by place, and all places at once."""
    expression = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(like, "TRIES_MAX", tries)
        matches = re.fullmatch(expression, text, re.DOTALL) is not None
        assert like.LikePattern(pattern, None).matches(text) is matches


SAID = """a b JMSType and OR Not between IN like escape is NULL true FALSE = <> < <= > >= != + - *
    / % ( ) , 1 0x1f 09 7. .5 1e3 9223372036854775808 'x' '%_' '' "q" ' " $ . é"""
WORDS = st.sampled_from(SAID.split()) | st.characters()
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


@settings(max_examples=250, deadline=None)
@example("a = '\ud800' or a like '\ud800_'", {"a": "\ud800"})
@given(
    st.text(max_size=60) | st.lists(WORDS, max_size=25).map(" ".join),
    st.dictionaries(st.sampled_from(["a", "b", "q", "JMSType"]), VALUES),
)
def test_no_text_and_no_message_surprises(text, values):
    try:
        selector = compile_selector(text)
    except InvalidArgument:
        return
    assert selector.truth(values) in (YES, NO, UNKNOWN)


NUMBERS = st.integers(-50, 50)
CONDITIONS = st.recursive(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["<", "=", "<>"]), NUMBERS)
    | st.tuples(st.just("null"), st.sampled_from(["a", "b", "c"])),
    lambda inner: (
        st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    ),
    max_leaves=8,
)


def said(tree):
    if tree[0] == "not":
        return f"NOT ({said(tree[1])})"
    if tree[0] == "null":
        return f"{tree[1]} IS NULL"
    if tree[0] in ("and", "or"):
        return f"({said(tree[1])}) {tree[0]} ({said(tree[2])})"
    return f"{tree[0]} {tree[1]} {tree[2]}"


def reckoned(tree, values):
    """The same by the book: false < unknown < true, AND is the least and OR the most."""
    if tree[0] == "not":
        return 2 - reckoned(tree[1], values)
    if tree[0] == "null":
        return 2 if values.get(tree[1]) is None else 0
    if tree[0] in ("and", "or"):
        return (min if tree[0] == "and" else max)(reckoned(each, values) for each in tree[1:])
    value = values.get(tree[0])
    if value is None:
        return 1
    return 2 * {"<": value < tree[2], "=": value == tree[2], "<>": value != tree[2]}[tree[1]]


@settings(max_examples=150, deadline=None)
@given(CONDITIONS, st.dictionaries(st.sampled_from(["a", "b", "c"]), NUMBERS))
def test_conditions_are_what_the_book_says(tree, values):
    expected = {0: NO, 1: UNKNOWN, 2: YES}[reckoned(tree, values)]
    assert compile_selector(said(tree)).truth(values) is expected
