# SPDX-License-Identifier: Apache-2.0
"""Operations that take definitions, and give them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.model.errors import ResourceError
from headrace.server.config.process import keep_what_lives
from headrace.server.definitions.apply import Report, apply
from headrace.server.definitions.document import ELEMENTS_MAX, SECTIONS, DocumentError
from headrace.server.definitions.export import export
from headrace.server.definitions.outcomes import DIFFERENT, MADE, NO_EQUIVALENT
from headrace.server.definitions.plan import Plan
from headrace.server.definitions.target import Running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headrace.server.management.call import Answered, Call, Operation, Steps

SLICE_S = 0.003  # Others have their turn after so long.
Step = TypeVar("Step")


async def export_definitions(call: Call) -> Steps:
    """Each element, with its section."""
    await call.broker.accounts.look()
    return exported(call)


def exported(call: Call) -> Steps:
    """Give the elements, one in each step."""
    vhost = None if call.request.get("vhost") is None else call.vhost().name
    count = 0
    for found in export(Running(call.broker), vhost, for_rabbitmq=call.flag("for_rabbitmq")):
        if found is None:
            yield None
            continue
        count += 1
        yield {"section": found[0], "value": found[1]}
    return {"items": count}


async def import_definitions(call: Call) -> Answered:
    """Take the elements that follow the request: all, or none of them where one is wrong.

    A line that follows has a section, the index of the first of its elements, and a list of them.
    """
    began = time.monotonic()
    vhost = None if call.request.get("vhost") is None else call.vhost().name
    dry_run, strict = call.flag("dry_run"), call.flag("strict")
    await call.broker.accounts.look()
    plan, report = Plan(Running(call.broker), vhost), Report()
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
            async for finding in sliced(call, planned(plan, elements)):
                report.add(finding)
    except DocumentError as error:
        call.refuse("bad-request", f"{error}; nothing was changed")
    refuse_if_strict(call, report, strict)
    if not dry_run:
        call.broker.note_operator(call, f"imports definitions: {report.total(MADE)} to be made")
        if plan.changes:
            await call.broker.accounts.change(plan.changes, call.actor)
        made = 0
        try:
            async for step in sliced(call, apply(plan)):
                made += 1
                if step is not None:
                    report.correct(step)
        except ResourceError as error:
            text = f"{error.text}; {made} steps were made before: import again to go on"
            call.refuse("resource", text)
    async for _ in sliced(call, plan.release()):
        pass
    for finding in report.lines:
        await call.tell(finding._asdict())
    return {
        "counts": report.counts,
        "unsaid": report.unsaid,
        "dry_run": dry_run,
        "seconds": round(time.monotonic() - began, 3),
    }


def refuse_if_strict(call: Call, report: Report, strict: bool) -> None:
    """With ``strict``, refuse what cannot be taken as it is."""
    if strict and (report.total(DIFFERENT) or report.total(NO_EQUIVALENT)):
        finding = next(line for line in report.lines if line.outcome in (DIFFERENT, NO_EQUIVALENT))
        text = f"{finding.path}: {finding.outcome}: {finding.text}; nothing was changed"
        call.refuse("precondition", text)


def planned(plan: Plan, elements: list[tuple[str, int, Any]]) -> Iterator[Any]:
    """Take up elements one by one."""
    for element in elements:
        yield plan.add(*element)


async def sliced(call: Call, steps: Iterator[Step]) -> AsyncIterator[Step]:
    """Give the steps, and give the loop to others again and again."""
    until = time.monotonic() + SLICE_S
    over = object()
    while True:
        with call.acting():
            step: Any = next(steps, over)
        if step is over:
            break
        yield step
        if time.monotonic() >= until:
            Running(call.broker).commit()
            keep_what_lives()
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_S
    Running(call.broker).commit()


OPERATIONS: dict[str, Operation] = {
    "export definitions": export_definitions,
    "import definitions": import_definitions,
}
