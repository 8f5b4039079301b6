# SPDX-License-Identifier: Apache-2.0
"""Definitions: export and import, and setting one element as an import does."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, TypeVar

from headrace.definition_file import SECTIONS
from headrace.model.errors import ResourceError
from headrace.server.config.process import freeze_objects
from headrace.server.definitions.apply import Report, apply
from headrace.server.definitions.document import ELEMENTS_MAX, DocumentError
from headrace.server.definitions.export import export, topology
from headrace.server.definitions.held_elements import RULES, TOPOLOGY, HeldElements
from headrace.server.definitions.outcomes import (
    CREATED,
    DIFFERENT,
    NO_EQUIVALENT,
    Finding,
    refused_outcomes,
)
from headrace.server.definitions.plan import Plan
from headrace.server.definitions.target import RunningTarget
from headrace.server.definitions.user_passwords import UserPasswords
from headrace.server.management.call import OperationRefused
from headrace.server.management.forwarding import OWNER_S, NotReached, forward, named_vhost
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.server.management.forwarding import ForwardedAnswer

operation = OperationTable()

SLICE_S = 0.003  # The time of steps after which the loop serves others.
BUSY_S = 10.0  # The interval between busy lines.
NEW_OWNER_S = 30.0  # The time to wait for the owner of a virtual host that the import creates.
NAMED_MAX = 10  # Virtual hosts that are named in an error.
Step = TypeVar("Step")


@operation("export definitions", ADMINISTER, reads=True, fields="`vhost`, `for_rabbitmq`")
async def export_definitions(call: Call) -> Steps:
    """List each element with its section.

    In a cluster, the brokers that serve the virtual hosts provide exchanges, queues and bindings.
    A request that another broker has forwarded lists only these.
    """
    await call.broker.accounts.poll()
    if call.forwarded:
        return export_topology(call)
    vhost = named_vhost(call)
    remote_lines: list[str] = []
    for name in list(call.broker.access.snapshot.vhosts):
        if vhost in (None, name) and call.is_elsewhere(name):
            remote_lines += await fetch_topology(call, name)
    return export_elements(call, vhost, remote_lines)


async def fetch_topology(call: Call, vhost: str) -> list[str]:
    """Return the lines of a virtual host from the broker that serves it; none if this one now does.

    Raises:
        OperationRefused: its owner did not answer.
    """
    request = {"do": "export definitions", "vhost": vhost}
    try:
        answer = await forward(call, vhost, request, wait_s=OWNER_S)
    except NotReached as error:
        call.refuse("internal", f"the export would lack a virtual host: {error}; try again")
    return [] if answer is None else answer.items


def export_topology(call: Call) -> Steps:
    """Yield the exchanges, queues and bindings of a virtual host, for another broker."""
    vhost = call.vhost()
    count = 0
    for element in topology(vhost, {"vhost": vhost.name}):
        count += element is not None
        yield None if element is None else {"section": element[0], "value": element[1]}
    return {"items": count}


def import_target(call: Call) -> RunningTarget:
    """Return the broker as the target of an import."""
    broker = call.broker
    return RunningTarget(
        broker.vhosts,
        broker.access,
        broker.storage,
        down=broker.accounts.down,
        turn=broker.reactor.turn,
    )


def export_elements(call: Call, vhost: str | None, remote_lines: list[str]) -> Steps:
    """Yield the elements, one in each step; ``remote_lines`` are those of other brokers."""
    count = 0
    for element in export(import_target(call), vhost, for_rabbitmq=call.flag("for_rabbitmq")):
        if element is None:
            yield None
            continue
        count += 1
        yield {"section": element[0], "value": element[1]}
    for text in remote_lines:
        item = json.loads(text)["item"]
        if vhost is not None:
            del item["value"]["vhost"]
        count += 1
        yield item
    return {"items": count}


@operation(
    "import definitions",
    ADMINISTER,
    fields="`vhost`, `dry_run`, `strict`, `known`, and lines",
    takes_lines=True,
)
async def import_definitions(call: Call) -> JsonLine:
    """Import the elements that follow the request, or none if one of them is invalid.

    Each line has a section, the index of its first element, and a list of elements. In a cluster,
    the brokers that serve the virtual hosts import exchanges, queues and bindings.
    """
    began = time.monotonic()
    vhost = named_vhost(call)
    dry_run = call.flag("dry_run")
    outcomes = refused_outcomes(strict=call.flag("strict"), known_only=call.flag("known"))
    await call.broker.accounts.poll()
    target = import_target(call)
    plan, report = Plan(target, vhost), Report()
    held = HeldElements(vhost)
    try:
        await plan_lines(call, plan, held, report, UserPasswords(target.snapshot().accounts))
    except DocumentError as error:
        call.refuse("bad-request", f"{error}; nothing was changed")
    if refusal := report.refusal(outcomes):
        call.refuse("precondition", refusal)
    existing = [name for name in held.vhosts() if name not in plan.changes.vhosts]
    for name in existing:
        await judge_elsewhere(call, name, held, report if dry_run else None)
    if not dry_run:
        call.log(f"imports definitions: {report.total(CREATED)} elements to create")
        await apply_plan(call, plan, held, report)
    async for _ in run_in_slices(call, plan.release()):
        pass
    for finding in report.lines:
        await call.send(finding._asdict())
    return {
        "counts": report.counts,
        "omitted": report.omitted,
        "dry_run": dry_run,
        "seconds": round(time.monotonic() - began, 3),
    }


async def plan_lines(
    call: Call, plan: Plan, held: HeldElements, report: Report, passwords: UserPasswords
) -> None:
    """Plan the elements of all lines that follow a request; report a finding for each.

    Raises:
        DocumentError: an element is invalid.
        OperationRefused: a line is malformed, or there are more than ``ELEMENTS_MAX`` elements.
    """
    count = 0
    while (line := await call.receive()) is not None:
        section, values = line.get("section"), line.get("values")
        if section not in SECTIONS or not isinstance(values, list):
            call.refuse("bad-request", "a line must have a section and values")
        first = line.get("first")
        if not isinstance(first, int) or isinstance(first, bool):
            call.refuse("bad-request", "a line must have the index of its first value")
        count += len(values)
        if count > ELEMENTS_MAX:
            call.refuse("limit", f"there are more than {ELEMENTS_MAX} elements")
        elements = [(section, first + index, value) for index, value in enumerate(values)]
        for index, element in enumerate(elements):
            if passwords.needs_hash(section, element[2]):
                value = await asyncio.to_thread(passwords.replace_password, *element)
                elements[index] = (section, first + index, value)
        elements = hold_elsewhere(call, plan, held, elements)
        async for finding in run_in_slices(call, plan_elements(plan, elements)):
            report.add(finding)


async def apply_plan(call: Call, plan: Plan, held: HeldElements, report: Report) -> None:
    """Apply a plan here, and import the held topology at the brokers that serve it.

    Raises:
        OperationRefused: an element could not be created, or another broker did not import its
            part; the rest was imported.
    """
    if plan.changes:
        await call.broker.accounts.change(plan.changes, call.actor)
    failures: list[str] = []
    vhosts_elsewhere = await import_elsewhere(call, plan, held, report, failures)
    steps = 0
    try:
        async for step in run_in_slices(call, apply(plan, vhosts_elsewhere)):
            steps += 1
            if step is not None:
                report.correct(step)
    except ResourceError as error:
        text = f"{error.text}; {steps} steps were done before: import again to continue"
        call.refuse("resource", text)
    if failures:
        more = f" and {len(failures) - NAMED_MAX} more" if len(failures) > NAMED_MAX else ""
        call.refuse(
            "internal",
            "exchanges, queues and bindings were not imported, but everything else was: "
            f"{'; '.join(failures[:NAMED_MAX])}{more}; import again to continue",
        )


def hold_elsewhere(
    call: Call, plan: Plan, held: HeldElements, elements: list[tuple[str, int, object]]
) -> list[tuple[str, int, object]]:
    """Hold the elements for other brokers, and return those that this broker plans.

    The topology of a virtual host that the import creates is both held and planned, because it must
    be judged before the virtual host has an owner.
    """
    broker = call.broker
    if broker.node is None or call.forwarded:
        return elements
    planned = []
    for element in elements:
        section, _, value = element
        vhost = held.element_vhost(section, value)
        is_local = vhost is None or vhost in broker.vhosts
        is_new = vhost in plan.changes.vhosts
        if vhost is not None and not is_local and (is_new or call.is_elsewhere(vhost)):
            held.add(vhost, *element)
            if section in TOPOLOGY and not is_new:
                continue
        planned.append(element)
    return planned


async def judge_elsewhere(
    call: Call, vhost: str, held: HeldElements, report: Report | None
) -> None:
    """Have the broker that serves a virtual host check its elements in a dry run.

    Its findings are added to ``report``, unless that is None.

    Raises:
        OperationRefused: the broker refuses the elements, or does not answer; nothing changed.
    """
    request = import_request(call, vhost, dry_run=True)
    try:
        lines = held.lines(vhost, RULES + TOPOLOGY)
        answer = await forward(call, vhost, request, lines, wait_s=OWNER_S)
    except NotReached as error:
        call.refuse("internal", f"{error}; nothing was changed")
    if answer is None:
        call.refuse("internal", f"virtual host '{vhost}' moves between brokers: import again")
    if report is not None:
        add_report(report, answer)


async def import_elsewhere(
    call: Call, plan: Plan, held: HeldElements, report: Report, failures: list[str]
) -> list[str]:
    """Have the brokers that serve the virtual hosts import their held topology.

    Return the virtual hosts that this broker does not serve. ``failures`` gets the reason for each
    virtual host whose topology was not imported.
    """
    elsewhere = []
    deadline_s = time.monotonic() + NEW_OWNER_S
    for vhost in held.vhosts():
        is_new = vhost in plan.changes.vhosts
        request = import_request(call, vhost, dry_run=False)
        if is_new:  # The plan of this broker has checked the elements.
            request.update(strict=False, known=False)
        wait_s = max(0.0, deadline_s - time.monotonic()) if is_new else OWNER_S
        try:
            answer = await forward(call, vhost, request, held.lines(vhost, TOPOLOGY), wait_s=wait_s)
        except NotReached as error:
            failures.append(str(error))
        except OperationRefused as error:
            failures.append(error.text)
        else:
            if answer is None and is_new:
                continue  # This broker serves the virtual host, whose elements are in the plan.
            if answer is None:
                failures.append(f"virtual host '{vhost}' moves between brokers")
            elif is_new:
                for finding in parse_topology_findings(answer):
                    if finding.outcome == DIFFERENT:  # A client declared it first.
                        report.correct(finding)
            else:
                add_report(report, answer)
        elsewhere.append(vhost)
    return elsewhere


def import_request(call: Call, vhost: str, *, dry_run: bool) -> dict[str, object]:
    """Return the request to another broker for the part of an import in one virtual host."""
    flags = {"strict": call.flag("strict"), "known": call.flag("known"), "dry_run": dry_run}
    return {"do": "import definitions", "vhost": vhost, **flags}


def parse_topology_findings(answer: ForwardedAnswer) -> list[Finding]:
    """Return the findings about topology in the answer of another broker."""
    findings = [Finding(**json.loads(text)["item"]) for text in answer.items]
    return [finding for finding in findings if finding.section in TOPOLOGY]


def add_report(report: Report, answer: ForwardedAnswer) -> None:
    """Add the counts and findings about topology in the answer of another broker."""
    counts = answer.done.get("counts")
    omitted = answer.done.get("omitted")
    assert isinstance(counts, dict)
    assert isinstance(omitted, int)
    report.merge(
        {name: counts[name] for name in TOPOLOGY if name in counts}, parse_topology_findings(answer)
    )
    report.omitted += omitted


def plan_elements(plan: Plan, elements: list[tuple[str, int, object]]) -> Iterator[Finding]:
    """Add elements to a plan one by one."""
    for element in elements:
        yield plan.add(*element)


async def run_in_slices(call: Call, steps: Iterator[Step]) -> AsyncIterator[Step]:
    """Run steps and yield their results; let the loop serve others every ``SLICE_S``."""
    slice_end_s = time.monotonic() + SLICE_S
    busy_at_s = time.monotonic() + BUSY_S
    while True:
        with call.acting():
            try:
                step = next(steps)
            except StopIteration:
                break
        yield step
        if time.monotonic() >= slice_end_s:
            call.broker.reactor.turn()
            freeze_objects()
            await asyncio.sleep(0)
            slice_end_s = time.monotonic() + SLICE_S
            if slice_end_s > busy_at_s:
                await call.busy()
                busy_at_s = slice_end_s + BUSY_S
    call.broker.reactor.turn()


async def put_element(call: Call, section: str, value: dict[str, object]) -> bool:
    """Set one element of a section, as an import does; return True if it is new.

    Raises:
        DocumentError: the value is invalid.
        OperationRefused: this broker has no equivalent of the element.
        AccountError: the element could not be written.
    """
    plan = Plan(import_target(call), exact=True)
    finding = plan.add(section, 0, value)
    if finding.outcome == NO_EQUIVALENT:
        call.refuse("precondition", finding.text)
    if plan.changes:
        await call.broker.accounts.change(plan.changes, call.actor)
    return finding.outcome == CREATED
