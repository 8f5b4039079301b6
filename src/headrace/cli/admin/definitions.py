# SPDX-License-Identifier: Apache-2.0
"""Export and import of definitions in RabbitMQ's JSON format.

A running broker exports and imports through its management socket. If no broker runs, the command
opens and locks the data directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

import click

from headrace.cli.admin.accounts import check_schema, command_line
from headrace.cli.management import ask, exchange, list_items
from headrace.cli.output import Answer, format_value
from headrace.definition_file import SECTIONS
from headrace.management_socket import FILE_NAME
from headrace.model.errors import ModelError
from headrace.model.policy.accounts import AccountError
from headrace.server.definitions.apply import Report, apply
from headrace.server.definitions.document import (
    DOCUMENT_BYTES_MAX,
    ELEMENT_CHARACTERS_MAX,
    Document,
    DocumentError,
    check_nested,
    read_document,
)
from headrace.server.definitions.export import Exported, export, origin_fields
from headrace.server.definitions.outcomes import NO_EQUIVALENT, WORDS, Finding, refused_outcomes
from headrace.server.definitions.plan import Plan
from headrace.server.definitions.rabbitmq import Reader, adapt
from headrace.server.definitions.target import DirectoryTarget
from headrace.server.definitions.user_passwords import UserPasswords
from headrace.store.catalog.database import FILE_NAME as DATABASE
from headrace.store.disk import Disk
from headrace.store.errors import StoreError

LINE_CHARACTERS = 256 << 10  # Maximum size of a line of elements.
LINE_ELEMENTS = 500  # Maximum number of elements of a line.
Sections: TypeAlias = dict[str, list[Answer]]  # Elements by section.
# Elements are sorted by these fields, so that two exports can be compared.
ORDER = ("vhost", "user", "component", "exchange", "source", "name", "destination", "routing_key")
FAILURES = (AccountError, StoreError)


def export_to(
    file: str, data: Path, socket: Path | None, vhost: str | None, rabbitmq: Reader | None
) -> None:
    """Write the definitions of a running broker, or of an offline data directory, to a file."""
    running = running_socket(data, socket)
    if running is not None:
        fields = {"vhost": vhost, "for_rabbitmq": rabbitmq is not None}
        items = list_items(running, "export definitions", timeout_s=None, **fields)
        elements: Iterable[Exported | None] = ((item["section"], item["value"]) for item in items)
        write_file(file, elements, rabbitmq)
        return
    if not has_definitions(data):
        raise click.ClickException(f"{data} has no data of a broker: check --data")
    with open_offline(data) as target:
        if vhost is not None and vhost not in target.vhosts:
            raise click.ClickException(f"there is no virtual host '{vhost}'")
        write_file(file, export(target, vhost, for_rabbitmq=rabbitmq is not None), rabbitmq)


def import_definitions(
    document: Document,
    data: Path,
    socket: Path | None,
    vhost: str | None,
    *,
    dry_run: bool = False,
    strict: bool = False,
    known: bool = False,
) -> Answer:
    """Import a file into a running broker or an offline data directory; return the report.

    Nothing is changed if an element has no equivalent in Headrace and ``strict`` or ``known`` is
    True, or if an element differs from the file and ``strict`` is True.
    """
    if vhost is None and not document.is_whole and any(lacks_vhost(document)):
        vhost = "/"
    running = running_socket(data, socket)
    if running is not None:
        flags = {"dry_run": dry_run, "strict": strict, "known": known}
        return import_running(document, running, vhost, flags)
    with contextlib.ExitStack() as stack:
        if dry_run and not has_definitions(data):  # A dry run must not create the directory.
            data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        target = stack.enter_context(open_offline(data))
        outcomes = refused_outcomes(strict=strict, known_only=known)
        return import_offline(document, target, vhost, outcomes, dry_run=dry_run)


def import_running(
    document: Document, socket: Path, vhost: str | None, flags: dict[str, bool]
) -> Answer:
    """Import a file into a running broker."""
    fields = {"vhost": vhost, **flags}
    lines: list[Answer] = []
    report: Answer = {}
    rows = batches(document)
    for answer in exchange(socket, "import definitions", fields, rows=rows, timeout_s=None):
        if "item" in answer:
            lines.append(answer["item"])
        report = answer.get("done", report)
    return add_unknown_sections(document, {**report, "lines": lines})


def import_offline(
    document: Document,
    target: DirectoryTarget,
    vhost: str | None,
    outcomes: tuple[str, ...],
    *,
    dry_run: bool,
) -> Answer:
    """Import a file into a data directory that no broker uses.

    Nothing is changed if an element has one of the refused ``outcomes``.
    """
    began = time.monotonic()
    plan, report = Plan(target, vhost), Report()
    passwords = UserPasswords(target.snapshot().accounts)
    try:
        for section, index, value in document.elements():
            hashed = passwords.replace_password(section, index, value)
            report.add(plan.add(section, index, hashed))
    except DocumentError as error:
        raise click.ClickException(f"{error}; nothing was changed") from None
    if refusal := report.refusal(outcomes):
        raise click.ClickException(refusal)
    if not dry_run:
        try:
            if plan.changes:
                target.change(plan.changes)
            for step in apply(plan):
                if step is not None:
                    report.correct(step)
            target.finish()
        except (ModelError, OSError) as error:
            raise click.ClickException(str(error)) from None
    report_fields = {
        "counts": report.counts,
        "omitted": report.omitted,
        "dry_run": dry_run,
        "seconds": round(time.monotonic() - began, 3),
        "lines": [line._asdict() for line in report.lines],
    }
    return add_unknown_sections(document, report_fields)


def add_unknown_sections(document: Document, report: Answer) -> Answer:
    """Add the sections that Headrace does not know to a report."""
    for name, count in document.unknown_sections.items():
        report["counts"].setdefault(name, {})[NO_EQUIVALENT] = count
        text = "Headrace does not support this section"
        line = Finding(name, f"$.{name:.64}", "", NO_EQUIVALENT, text)
        report["lines"].append(line._asdict())
    return report


def print_report(report: Answer, form: str) -> None:
    """Print the report of an import."""
    if form == "json":
        click.echo(json.dumps(report))
        return
    for line in report["lines"]:
        name = f" {format_value(line['name'])}" if line["name"] else ""
        click.echo(f"{line['path']}{name}: {WORDS[line['outcome']]}: {format_value(line['text'])}")
    if report["omitted"]:
        click.echo(f"… and {report['omitted']} more")
    for section, counts in report["counts"].items():
        words = [f"{counts[name]} {word}" for name, word in WORDS.items() if counts.get(name)]
        click.echo(f"{format_value(section)}: {', '.join(words) or 'none'}")
    changed = "nothing was changed (dry run)" if report["dry_run"] else "done"
    click.echo(f"{changed}, {report['seconds']:.1f} s")


# --- The data directory --------------------------------------------------------------------------


def running_socket(data: Path, socket: Path | None) -> Path | None:
    """Return the management socket of the broker; None if no broker runs on the directory."""
    if socket is not None:
        return socket
    path = data / FILE_NAME
    if not os.path.exists(path):  # noqa: PTH110 - Also false if the directory is not readable.
        return None
    try:
        ask(path, "list vhosts")
    except click.ClickException:
        with contextlib.suppress(*FAILURES):
            DirectoryTarget(data).close()
            return None  # Left by a killed broker.
        raise
    return path


def has_definitions(data: Path) -> bool:
    """Return True if a directory has definitions, or cannot be read."""
    try:
        return (data / DATABASE).exists()
    except OSError:
        return True  # Opening it raises the error.


@contextlib.contextmanager
def open_offline(data: Path) -> Iterator[DirectoryTarget]:
    """Open a data directory without a broker; an error ends the command with one sentence."""
    try:
        Disk().make_directory(str(data.absolute()))
        check_schema(data)
        with contextlib.closing(DirectoryTarget(data, command_line())) as target:
            yield target
    except FAILURES as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"data directory {data}: {error.strerror or error}") from None


# --- Files ---------------------------------------------------------------------------------------


def read_file(file: str) -> Document:
    """Read a file of definitions; an error ends the command with a message."""
    try:
        with contextlib.ExitStack() as stack:
            source: IO[bytes] = sys.stdin.buffer
            if file != "-":
                source = stack.enter_context(Path(file).open("rb"))
            data = source.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    try:
        document = read_document(data)
        for section, index, value in document.elements():
            check_nested(value, f"$.{section}[{index}]")
            if len(json.dumps(value)) > ELEMENT_CHARACTERS_MAX:
                text = f"an element may have at most {ELEMENT_CHARACTERS_MAX} characters"
                raise DocumentError(f"$.{section}[{index}]", text)
    except DocumentError as error:
        raise click.ClickException(f"{file}: {error}; nothing was changed") from None
    return document


def lacks_vhost(document: Document) -> Iterator[bool]:
    """Yield, for each element that belongs to a virtual host, whether it names none."""
    for section, _, value in document.elements():
        if section in ("policies", "parameters", "exchanges", "queues", "bindings"):
            yield isinstance(value, dict) and "vhost" not in value


def batches(document: Document) -> Iterator[Answer]:
    """Yield the elements in batches; each batch is one line of the request."""
    for section in SECTIONS:
        values = document.sections.get(section, [])
        first = size = 0
        for index, value in enumerate(values):
            length = len(json.dumps(value))
            full = size + length > LINE_CHARACTERS or index - first == LINE_ELEMENTS
            if full and index > first:
                yield {"section": section, "first": first, "values": values[first:index]}
                first, size = index, 0
            size += length
        if first < len(values):
            yield {"section": section, "first": first, "values": values[first:]}


def write_file(file: str, elements: Iterable[Exported | None], rabbitmq: Reader | None) -> None:
    """Write definitions, replacing the file atomically; print the omitted elements."""
    sections: Sections = {section: [] for section in SECTIONS}
    for element in elements:
        if element is not None:
            sections[element[0]].append(element[1])
    for values in sections.values():
        values.sort(key=lambda value: [str(value.get(field, "")) for field in ORDER])
    losses: list[str] = []
    if rabbitmq is not None:
        sections, losses = adapt(sections, rabbitmq)
    text = json.dumps({**origin_fields(), **sections}, indent=1) + "\n"
    if file == "-":
        click.echo(text, nl=False)
    else:
        write_private_file(Path(file), text)
    for line in (*map(format_value, losses), *remarks(sections, rabbitmq is not None)):
        click.echo(line, err=True)


def write_private_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read, because it has password hashes."""
    if not path.name:
        raise click.ClickException("the name of the file is empty")
    part_path = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        handle = os.open(part_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        part_path.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part_path.unlink()
        raise click.ClickException(f"{path}: {error.strerror}") from None


def remarks(sections: Sections, for_rabbitmq: bool) -> Iterator[str]:
    """Yield remarks on an export for the operator."""
    users = [user["name"] for user in sections["users"]]
    if for_rabbitmq:
        without_password = [user["name"] for user in sections["users"] if not user["password_hash"]]
        if without_password:
            names = ", ".join(map(format_value, without_password))
            yield f"these users have no password; set one in RabbitMQ: {names}"
        return
    headrace_hashes = [
        user["name"]
        for user in sections["users"]
        if user.get("hashing_algorithm", "").startswith("headrace")
    ]
    if users and headrace_hashes:
        yield (
            f"{len(headrace_hashes)} users have hashes that only Headrace can read; "
            "for RabbitMQ export with --for rabbitmq"
        )
