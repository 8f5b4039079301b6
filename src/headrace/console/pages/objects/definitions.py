# SPDX-License-Identifier: Apache-2.0
"""Definitions, down and up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import definitions
from headrace.console.pages.actions import Action, Field, Report
from headrace.console.pages.commands import is_on, line
from headrace.console.pages.listings import Link
from headrace.console.pages.texts import number
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

#: Outcomes of elements, as the broker calls them, with the words of a report, in its order.
OUTCOMES = {
    "made": "created",
    "changed": "changed",
    "there": "unchanged",
    "different": "kept (differs)",
    "in part": "imported in part",
    "no equivalent": "without equivalent",
}


def command(call: HttpCall, values: Values) -> str:
    """Return the command line that does the same."""
    known, dry_run = (
        not is_on(values.get(definitions.LENIENT)),
        is_on(values.get(definitions.DRY_RUN)),
    )
    return line("definitions", "import", "FILE", known=known, dry_run=dry_run)


async def upload(call: HttpCall, form: Body) -> Report | None:
    """Import the file of a form; return None where every element is as in the file."""
    report = await definitions.import_definitions(
        call,
        await definitions.document_of(call),
        lenient=bool(form.flag(definitions.LENIENT)),
        dry_run=bool(form.flag(definitions.DRY_RUN)),
    )
    return report_of(report) if definitions.is_worth_showing(report) else None


def report_of(report: JsonObject) -> Report:
    """Return the report of an import for its page."""
    counts = counted(report["counts"])
    title = (
        f"Dry run: nothing was changed. {counts}" if report["dry_run"] else f"Imported. {counts}"
    )
    lines = [line_of(finding) for finding in report["findings"]]
    if report["omitted"]:
        lines.append(f"… and {number(report['omitted'])} more")
    return Report(title, tuple(lines))


def counted(sections: JsonObject) -> str:
    """Return how many elements had each outcome, as a sentence."""
    sums = {name: sum(one.get(name, 0) for one in sections.values()) for name in OUTCOMES}
    words = [f"{number(count)} {OUTCOMES[name]}" for name, count in sums.items() if count]
    return f"Elements: {', '.join(words) or 'none'}."


def line_of(finding: JsonObject) -> str:
    """Return a line about an element that is not as the file says."""
    name = f" {finding['name']}" if finding["name"] else ""
    outcome = OUTCOMES.get(finding["outcome"], finding["outcome"])
    return f"{finding['path']}{name}: {outcome}: {finding['text']}"


ACTIONS = (
    Action(
        "/definitions",
        "Definitions",
        upload,
        lambda call, values: "/definitions",
        lambda call, values: "The definitions are imported; all elements match the file.",
        (
            Field(
                "file",
                "Definitions file",
                "file",
                help="JSON of Headrace or RabbitMQ. Elements that exist and differ are kept and "
                "listed; users, permissions and policies take the value of the file.",
            ),
            Field(
                definitions.LENIENT,
                "Skip elements without an equivalent here, such as shovels",
                "flag",
                help="Otherwise a file with such an element is refused as a whole.",
            ),
            Field(
                definitions.DRY_RUN,
                "Dry run: report the changes without making them",
                "flag",
            ),
        ),
        command=command,
        button="Import",
        tag=ADMINISTRATOR,
        links=lambda call: [
            Link("Export all", "/api/definitions?download=definitions.json", ADMINISTRATOR)
        ],
        body_max=definitions.DEFINITIONS_BYTES_MAX,
    ),
)
