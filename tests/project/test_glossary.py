# SPDX-License-Identifier: Apache-2.0
"""The glossary has the words of the console's pages: what is not plain English is explained."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from headrace.console import pages
from headrace.console.pages.navigation import MENU
from headrace.console.pages.routes import RESOURCES

GLOSSARY = Path(__file__).parents[2] / "docs" / "reference" / "glossary.md"
TEMPLATES = Path(pages.__file__).parent / "templates"
ROW = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
JINJA = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)
LABEL = re.compile(r"<(h[1-6]|th|dt|label|button|legend|summary)\b[^>]*>(.*?)</\1>", re.DOTALL)
WORD = re.compile(r"[a-z][a-z-]*[a-z]|amq\.[\w.]+")
PARAMETER = re.compile(r"\{\w+\}")  # Of the path, in a title.
TEXTS = ("title", "button", "label")  # Fields of what pages are made of.
#: Forms of words of the glossary.
FORMS = {
    "acked": "ack",
    "acknowledged": "ack",
    "bind": "binding",
    "claimed": "claim",
    "leased": "lease",
    "published": "publish",
    "routed": "route",
    "settled": "settle",
    "trace": "tracing",
    "transactional": "transaction",
    "unacknowledged": "unacked",
}
#: Words that need no explanation, as labels have them.
PLAIN = """
a access action active add address age all allowed also amq an and applied apply at authentication
base blocked broker by byte cancel cannot change client close committed complete condition
connected containing content copy created dark death decide decision declare declared default
delete deleted deletion delivered delivery description detail directory done dropped element empty
encoding ended equivalent error examined expired expression file filter first force forget from go
has headrace here hour id if import in is it kind last later length level limit log logged logger
making maximum menu message mode move name new next no notified number of oldest on one only
optional or other out overview part password pattern peak per place port preview priority process
processed protect protected protocol queue rabbitmq reason regular rejected relative remove report
restart restrict returned row rule save search selected set setting show since size skip skipped
spark start started state such survive target the them this time tls to type unit up value view
where which while with without would
"""


def labels() -> Iterator[str]:
    """Yield the short texts of all pages: menu, titles, heads of columns, fields, buttons."""
    for group, entries in MENU:
        yield group
        yield from (entry.title for entry in entries)
    for resource in RESOURCES:
        yield from (page.kind for page in resource.details)
        yield from texts_of([*resource.lists, *resource.details, *resource.actions])
    for info in pkgutil.walk_packages(pages.__path__, f"{pages.__name__}."):
        yield from texts_of(tuple(vars(import_module(info.name)).values()))
    for template in TEMPLATES.glob("*.html"):
        for _, text in LABEL.findall(JINJA.sub("", template.read_text())):
            yield re.sub(r"<[^>]*>", " ", text)


def texts_of(value: object) -> Iterator[str]:
    """Yield the labels of tables, columns and forms, however deep they stand."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from texts_of(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            found = getattr(value, field.name)
            if field.name in TEXTS and isinstance(found, str):
                yield found
            elif isinstance(found, tuple):
                yield from texts_of(found)


def singular(word: str) -> str:
    """Return a noun without the ending of its plural."""
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def test_every_word_of_the_pages_is_plain_or_explained() -> None:
    terms = {
        tuple(singular(word) for word in re.findall(r"[\w-]+", term.lower()))
        for term, _ in ROW.findall(GLOSSARY.read_text())
    }
    longest = max(map(len, terms))
    plain = {singular(word) for word in PLAIN.split()}
    unknown: dict[str, str] = {}
    used = set[str]()
    for label in labels():
        said = PARAMETER.sub("", label).lower()
        words = [singular(FORMS.get(word, word)) for word in WORD.findall(said)]
        at = 0
        while at < len(words):
            sizes = range(longest, 0, -1)
            size = next((n for n in sizes if tuple(words[at : at + n]) in terms), 0)
            if not size and words[at] not in plain:
                unknown[words[at]] = label
            elif not size:
                used.add(words[at])
            at += size or 1
    assert unknown == {}, "explain them in docs/reference/glossary.md, or say it in plain words"
    assert plain - used == set(), "no page has these words"


def test_the_glossary_is_in_order_and_has_sentences() -> None:
    rows = ROW.findall(GLOSSARY.read_text())[1:]
    terms = [term for term, _ in rows]
    assert terms == sorted(terms, key=str.lower)
    assert len(set(terms)) == len(terms)
    assert [text for _, text in rows if not text.endswith(".")] == []
