# SPDX-License-Identifier: Apache-2.0
"""The page that imports definitions, with a link that exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import definitions
from headrace.console.pages.actions import Field, Report
from headrace.console.pages.command_lines import command_line, is_on
from headrace.console.pages.links import Link
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import number
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.api.definitions import ImportReport
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.management_rows import FindingRow

#: Words of a report for the outcomes that the broker names, in the order of the report.
OUTCOMES = {
    "made": "created",
    "changed": "changed",
    "there": "unchanged",
    "different": "kept (differs)",
    "in part": "imported in part",
    "no equivalent": "without equivalent",
}
PAGES = ResourcePages()


def import_command(values: Values) -> str:
    """Return the command line that imports definitions."""
    is_lenient = is_on(values.get(definitions.LENIENT))
    is_dry_run = is_on(values.get(definitions.DRY_RUN))
    return command_line("definitions", "import", "FILE", known=not is_lenient, dry_run=is_dry_run)


def export_link() -> list[Link]:
    """Return the link that exports all definitions."""
    return [Link("Export all", "/api/definitions?download=definitions.json", ADMINISTRATOR)]


@PAGES.action(
    "/definitions",
    "Definitions",
    back="/definitions",
    notice="The definitions are imported; all elements match the file.",
    command=import_command,
    fields=(
        Field(
            "file",
            "Definitions file",
            "file",
            help="JSON of Headrace or RabbitMQ. Elements that exist and differ are kept and "
            "listed; users, permissions and policies take the value of the file.",
            required=True,
        ),
        Field(
            definitions.LENIENT,
            "Skip elements without an equivalent here, such as shovels",
            "flag",
            help="Otherwise a file with such an element is refused as a whole.",
        ),
        Field(definitions.DRY_RUN, "Dry run: report the changes without making them", "flag"),
    ),
    button="Import",
    tag=ADMINISTRATOR,
    links=export_link,
    body_max=definitions.DEFINITIONS_BYTES_MAX,
)
async def import_file(call: HttpCall, form: Body) -> Report | None:
    """Import the file of a form; return None if all elements match the file."""
    report = await definitions.import_definitions(
        call,
        await definitions.read_document(call),
        lenient=bool(form.flag(definitions.LENIENT)),
        dry_run=bool(form.flag(definitions.DRY_RUN)),
    )
    return build_report(report) if definitions.has_report(report) else None


def build_report(report: ImportReport) -> Report:
    """Return the report of an import for its page."""
    outcome = "Dry run: nothing was changed." if report["dry_run"] else "Imported."
    summary = f"{outcome} {format_counts(report['counts'])}"
    lines = [format_finding(finding) for finding in report["findings"]]
    if report["omitted"]:
        lines.append(f"… and {number(report['omitted'])} more")
    return Report(summary, tuple(lines))


def format_counts(sections: Mapping[str, Mapping[str, int]]) -> str:
    """Return the numbers of elements by outcome as a sentence; the sections are added up."""
    sums = {name: sum(counts.get(name, 0) for counts in sections.values()) for name in OUTCOMES}
    words = [f"{number(count)} {OUTCOMES[name]}" for name, count in sums.items() if count]
    return f"Elements: {', '.join(words) or 'none'}."


def format_finding(finding: FindingRow) -> str:
    """Return the line of a report for an element that does not match the file."""
    name = f" {finding['name']}" if finding["name"] else ""
    outcome = OUTCOMES.get(finding["outcome"], finding["outcome"])
    return f"{finding['path']}{name}: {outcome}: {finding['text']}"
