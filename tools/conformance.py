# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/conformance.md and docs/reference/conformance.json: every rule of the
standards and its verdict.

    python tools/conformance.py            # `make conformance`
    python tools/conformance.py --check    # fail if they are stale or have faults

A rule is proven by the tests with its `rule` marker. For a rule without tests,
docs/reference/conformance-reasons.json has the reason; a reason that begins with NOT_KEPT means
that the broker does not keep the rule. Faults are: a marker of an unknown rule, a reason for a
proven or unknown rule, and, once COMPLETE, a rule without a verdict. tests/conftest.py checks that
no test with a marker is skipped.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from headrace.conformance.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "reference"
NOT_KEPT = "Not kept"
COLUMNS = "| Rule | Subject | Sentence | Level | Modules | Tests |"
RULE_ID = re.compile(
    r"\b0-(?:9-1|9|10)/[\w.#-]*\w"
)  # In a comment of the line that keeps the rule.
COMPLETE = True  # True: every rule must have a verdict, and the pages must be as generated.
TITLES = {"0-9-1": "AMQP 0-9-1", "0-9": "AMQP 0-9", "0-10": "AMQP 0-10"}

HEAD = """# Conformance

`make conformance` generates this page from the tests' `rule` markers and
`conformance-reasons.json`; `conformance.json` has the same data. AMQP {titles} make {count}
normative statements. A row states a rule in our words. Its subject is the class, method or field of
the standard. Its level is the standard's word: where *the standard says MUST NOT*, it forbids the
contrary of the sentence. The other columns are the modules of `src/headrace` that keep the rule (a
comment there has its id), and the tests that would fail if it were broken, or the reason why there
is no such test. {broken} rules of 0-9-1 are not kept, on purpose: {names}. Statements about clients
are proven with Headrace's client.
Three rules are kept as far as a client asks for nothing else: a queue with a limit and the overflow
`drop-head` drops persistent messages, too; a client with the capability
`authentication_failure_close` gets a connection.close if it chooses a mechanism that its connection
may not use; and a message that was rejected with `requeue` returns to its consumer if the queue has
no other. For Qpid's clients of 0-9-1 a redeclaration with other properties is no error
([interoperation](interop.md#rules-for-qpids-clients-in-0-8-0-9-and-0-9-1)).
0-8 has no separate rules here: it states those of 0-9 in other words.

Rules that are visible from outside can be checked on any broker:

    headrace conformance amqp://guest:guest@localhost/               # all versions, a line per rule
    headrace conformance URL --version 0-9-1 --broken                # only broken rules
    headrace conformance URL --json verdicts.json

The command declares queues and exchanges named `headrace.conformance.…` and deletes them; its exit
status is 1 if a rule with MUST or MUST NOT is broken. It does not check {names} of 0-9-1. Of
the 96 rules of 0-9-1 that it checks RabbitMQ 3.10.8 keeps 88: it has no `immediate`, no
prefetch size and no channel.flow from clients, gives a rejected message to the consumer that
rejected it, and accepts an unbind of another connection's exclusive queue, among others. Headrace
keeps these 96, and the 140 rules of 0-10 that the command checks: about opening and closing
connections and sessions, about exchanges, queues, bindings, messages and credit, and about local
and distributed transactions. The same checks are in its test suite. If 0-10 requires an exception,
the checks accept any exception of the session, unless the standard names its kind.

| | Statements | Proven by tests | With a reason | Of these not kept | Open |
|---|---|---|---|---|---|
"""


class Collector:
    """A pytest plugin that records the rules of each test."""

    def __init__(self) -> None:
        self.items: dict[str, list[tuple[str, set[str]]]] = defaultdict(list)  # By function.

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            rules = {str(name) for mark in item.iter_markers("rule") for name in mark.args}
            self.items[item.nodeid.partition("[")[0]].append((item.nodeid, rules))

    def tests(self) -> dict[str, list[str]]:
        """Return the tests of each rule: whole functions if all their cases have its marker."""
        found: dict[str, set[str]] = defaultdict(set)
        for function, items in self.items.items():
            everywhere = set.intersection(*(rules for _, rules in items))
            for name in everywhere:
                found[name].add(function)
            for nodeid, rules in items:
                for name in rules - everywhere:
                    found[name].add(nodeid)
        return {name: sorted(nodes) for name, nodes in found.items()}


def collect() -> dict[str, list[str]]:
    """Collect the tests without running them; return the tests of each rule."""
    sys.path.insert(0, str(ROOT))  # As `python -m pytest` has it.
    collector = Collector()
    said = io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # We are imported already.
    with contextlib.redirect_stdout(said):
        status = pytest.main([*arguments, str(ROOT / "tests")], plugins=[collector])
    if status != pytest.ExitCode.OK:
        sys.exit(f"the tests cannot be collected:\n{said.getvalue()[-3000:]}")
    return collector.tests()


def problems(tests: dict[str, list[str]], reasons: dict[str, str]) -> list[str]:
    """Return the faults, a line each."""
    found = [
        f"{', '.join(nodes)}: no rule has the id {name!r}"
        for name, nodes in sorted(tests.items())
        if name not in RULES
    ]
    for name, reason in reasons.items():
        if name not in RULES:
            found.append(f"conformance-reasons.json: no rule has the id {name!r}")
        elif name in tests:
            found.append(f"conformance-reasons.json: {name} is proven, by {tests[name][0]}")
        elif not reason.strip():
            found.append(f"conformance-reasons.json: {name} has an empty reason")
    if list(reasons) != sorted(reasons):
        found.append("conformance-reasons.json: not sorted by id")
    if COMPLETE:
        missing = [name for name in RULES if name not in tests and name not in reasons]
        found += [f"{name} has no verdict" for name in missing]
    return found


def places() -> dict[str, list[str]]:
    """Return the modules of each rule: modules with a comment that has the rule's id."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "src" / "headrace").rglob("*.py")):
        if "conformance" in path.parts:  # It asks; it keeps none.
            continue
        for name in sorted(set(RULE_ID.findall(path.read_text(encoding="utf-8")))):
            if name in RULES:
                found[name].append(path.relative_to(ROOT / "src" / "headrace").as_posix())
    return found


def as_data(tests: dict[str, list[str]], reasons: dict[str, str]) -> str:
    verdicts: dict[str, dict[str, object]] = {}
    kept = places()
    for name, rule in RULES.items():
        verdicts[name] = {"sentence": rule.sentence}
        if name in kept:
            verdicts[name]["kept"] = kept[name]
        if name in tests:
            verdicts[name]["tests"] = tests[name]
        elif name in reasons:
            verdicts[name]["reason"] = reasons[name]
    return json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n"


def as_page(tests: dict[str, list[str]], reasons: dict[str, str]) -> str:
    broken = [name for name, reason in reasons.items() if reason.startswith(NOT_KEPT)]
    short = [name.removeprefix("0-9-1/") for name in broken]
    names = f"{', '.join(short[:-1])} and {short[-1]}"
    head = {"titles": "0-9-1, 0-9 and 0-10", "count": len(RULES), "broken": len(broken)}
    lines = [HEAD.format(**head, names=names)]
    total: Counter[str] = Counter()
    for version, title in TITLES.items():
        ids = [name for name, rule in RULES.items() if rule.version == version]
        counts = Counter(
            "proven" if name in tests else "reason" if name in reasons else "open" for name in ids
        )
        counts["not kept"] = sum(name in broken for name in ids)
        total += counts
        lines.append(_row(title, len(ids), counts))
    lines.append(_row("all", len(RULES), total))
    kept = places()
    for version, title in TITLES.items():
        lines.append(f"\n## {title}\n\n{COLUMNS}\n|---|---|---|---|---|---|\n")
        for name, rule in RULES.items():
            if rule.version != version:
                continue
            if name in tests:
                verdict = "<br>".join(f"`{node.removeprefix('tests/')}`" for node in tests[name])
            else:
                verdict = reasons.get(name, "**open**")
            number = name.partition("/")[2]
            level = f"the standard says {rule.level}" if "NOT" in rule.level else rule.level
            where = "<br>".join(f"`{path}`" for path in kept.get(name, ()))
            cells = (number, rule.where, rule.sentence, level, where, verdict)
            lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def _row(title: str, count: int, counts: Counter[str]) -> str:
    share = f"{counts['proven']} ({100 * counts['proven'] / count:.1f}%)"
    rest = " | ".join(str(counts[kind]) for kind in ("reason", "not kept", "open"))
    return f"| {title} | {count} | {share} | {rest} |\n"


def main() -> int:
    reasons = json.loads((DOCS / "conformance-reasons.json").read_text(encoding="utf-8"))
    tests = collect()
    wrong = problems(tests, reasons)
    pages = {
        DOCS / "conformance.md": as_page(tests, reasons),
        DOCS / "conformance.json": as_data(tests, reasons),
    }
    stale = [
        f"{path.relative_to(ROOT)} is stale: run `make conformance`"
        for path, text in pages.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" not in sys.argv:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
    elif COMPLETE:
        wrong += stale
    for line in wrong:
        sys.stderr.write(line + "\n")
    proven = sum(name in tests for name in RULES)
    left = len(RULES) - proven - len(reasons)
    sys.stdout.write(
        f"{len(RULES)} rules: {proven} proven, {len(reasons)} with a reason, {left} open\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
