# SPDX-License-Identifier: Apache-2.0
"""Definitions: export and import, and setting one element as an import does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from headrace.definition_file import SECTIONS
from headrace.model.errors import ResourceError
from headrace.server.config.process import freeze_objects
from headrace.server.definitions.apply import Report, apply
from headrace.server.definitions.document import ELEMENTS_MAX, DocumentError
from headrace.server.definitions.export import export
from headrace.server.definitions.outcomes import CREATED, NO_EQUIVALENT, refused
from headrace.server.definitions.plan import Plan
from headrace.server.definitions.target import Running
from headrace.server.definitions.user_passwords import UserPasswords
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from headrace.server.definitions.outcomes import Finding
    from headrace.server.management.call import Answer, Call, Steps

operation = OperationTable()

SLICE_S = 0.003  # Then the loop serves others.
Step = TypeVar("Step")


@operation("export definitions", ADMINISTER, fields="`vhost`, `for_rabbitmq`")
async def export_definitions(call: Call) -> Steps:
    """List each element with its section."""
    await call.broker.accounts.poll()
    return exported(call)


def running(call: Call) -> Running:
    """Return the broker as the target of an import."""
    broker = call.broker
    return Running(
        broker.vhosts,
        broker.access,
        broker.storage,
        down=broker.accounts.down,
        turn=broker.reactor.turn,
    )


def exported(call: Call) -> Steps:
    """Yield the elements, one a step."""
    vhost = call.vhost_filter()
    name = None if vhost is None else vhost.name
    count = 0
    for element in export(running(call), name, for_rabbitmq=call.flag("for_rabbitmq")):
        if element is None:
            yield None
            continue
        count += 1
        yield {"section": element[0], "value": element[1]}
    return {"items": count}


@operation(
    "import definitions",
    ADMINISTER,
    fields="`vhost`, `dry_run`, `strict`, `known`, and lines",
    takes_lines=True,
)
async def import_definitions(call: Call) -> Answer:
    """Import the elements that follow the request; if one is wrong, none.

    Each line has a section, the index of its first element, and a list of elements.
    """
    began = time.monotonic()
    vhost = call.vhost_filter()
    dry_run = call.flag("dry_run")
    outcomes = refused(strict=call.flag("strict"), known=call.flag("known"))
    await call.broker.accounts.poll()
    target = running(call)
    plan, report = Plan(target, None if vhost is None else vhost.name), Report()
    passwords = UserPasswords(target.snapshot().accounts)
    try:
        count = 0
        while (line := await call.receive()) is not None:
            section, values = line.get("section"), line.get("values")
            if section not in SECTIONS or not isinstance(values, list):
                call.refuse("bad-request", "a line has a section and values")
            first = line.get("first")
            if not isinstance(first, int) or isinstance(first, bool):
                call.refuse("bad-request", "a line has the index of its first value")
            count += len(values)
            if count > ELEMENTS_MAX:
                call.refuse("limit", f"there are more than {ELEMENTS_MAX} elements")
            elements = [(section, first + at, value) for at, value in enumerate(values)]
            for at, element in enumerate(elements):
                if passwords.is_in(section, element[2]):
                    value = await asyncio.to_thread(passwords.replaced, *element)
                    elements[at] = (section, first + at, value)
            async for finding in sliced(call, planned(plan, elements)):
                report.add(finding)
    except DocumentError as error:
        call.refuse("bad-request", f"{error}; nothing was changed")
    if refusal := report.refusal(outcomes):
        call.refuse("precondition", refusal)
    if not dry_run:
        call.log(f"imports definitions: {report.total(CREATED)} elements to create")
        if plan.changes:
            await call.broker.accounts.change(plan.changes, call.actor)
        steps = 0
        try:
            async for step in sliced(call, apply(plan)):
                steps += 1
                if step is not None:
                    report.correct(step)
        except ResourceError as error:
            text = f"{error.text}; {steps} steps were done before: import again to continue"
            call.refuse("resource", text)
    async for _ in sliced(call, plan.release()):
        pass
    for finding in report.lines:
        await call.send(finding._asdict())
    return {
        "counts": report.counts,
        "omitted": report.omitted,
        "dry_run": dry_run,
        "seconds": round(time.monotonic() - began, 3),
    }


def planned(plan: Plan, elements: list[tuple[str, int, object]]) -> Iterator[Finding]:
    """Add elements to a plan one by one."""
    for element in elements:
        yield plan.add(*element)


async def sliced(call: Call, steps: Iterator[Step]) -> AsyncIterator[Step]:
    """Yield the steps; let the loop serve others every ``SLICE_S``."""
    until = time.monotonic() + SLICE_S
    while True:
        with call.acting():
            try:
                step = next(steps)
            except StopIteration:
                break
        yield step
        if time.monotonic() >= until:
            call.broker.reactor.turn()
            freeze_objects()
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_S
    call.broker.reactor.turn()


async def put_element(call: Call, section: str, value: dict[str, object]) -> bool:
    """Set one element of a section of definitions; return True if it is new.

    Raises:
        DocumentError: the value is wrong.
        OperationRefused: this broker has no equivalent.
        AccountError: it could not be written.
    """
    plan = Plan(running(call), exact=True)
    finding = plan.add(section, 0, value)
    if finding.outcome == NO_EQUIVALENT:
        call.refuse("precondition", finding.text)
    if plan.changes:
        await call.broker.accounts.change(plan.changes, call.actor)
    return finding.outcome == CREATED
