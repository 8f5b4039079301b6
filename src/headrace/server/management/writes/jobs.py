# SPDX-License-Identifier: Apache-2.0
"""Jobs over the messages of a queue: move, copy, requeue and delete by selector.

They are the requests of :mod:`headrace.gateway.requests.messages`, with the same fields and the
same rights. A job of an operator goes on when its connection to the socket ends; ``cancel
job`` ends it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

from headrace.gateway.requests import messages
from headrace.gateway.requests.requests import RefusedRequest
from headrace.server.management.call import Refused
from headrace.server.management.operator_session import OperatorSession

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from headrace.gateway.requests.requests import RequestAnswer, RequestCall
    from headrace.server.management.call import Answered, Call, Operation

RUNNING = ("choosing", "moving")
LOOK_S = 0.05  # How often a running job is looked at,
TELL_S = 0.5  # and how often its progress is told.


def request_of(call: Call) -> RequestCall:
    """Return a request on messages, as the user of a call."""
    fields = {"id": secrets.token_hex(8), **call.request, "wait": False}
    return OperatorSession(call).request(fields)


def run_job(do: str) -> Operation:
    """Return the operation that runs one kind of job.

    Its items are the progress, its answer is the result; with ``wait`` false the answer comes at
    once, with the ``id`` to ask with.
    """

    async def run(call: Call) -> Answered:
        wait = call.flag("wait", True)
        request = request_of(call)
        answer = attempt(lambda: messages.run(request, do))
        if not call.flag("dry_run") and not answer.get("already"):  # Neither does anything.
            call.log(f"has messages of {request.request['from']!r} in {request.vhost.name!r}: {do}")
        told_s = time.monotonic()
        while wait and answer.get("state") in RUNNING:
            if time.monotonic() - told_s > TELL_S:
                told_s = time.monotonic()
                await call.tell(answer)
            await asyncio.sleep(LOOK_S)
            answer = attempt(lambda: messages.show(request))
        return await settled(call, request, answer)

    return run


async def show_job(call: Call) -> Answered:
    """Return the progress, or the result, of a job."""
    request = request_of(call)
    return await settled(call, request, attempt(lambda: messages.show(request)))


async def cancel_job(call: Call) -> Answered:
    """Cancel a job, unless it is decided; return its result."""
    request = request_of(call)
    attempt(lambda: messages.show(request))
    steps = messages.cancel(request)
    while True:
        with call.acting():
            try:
                attempt(lambda: next(steps))
            except StopIteration as end:
                return await settled(call, request, dict(end.value))
        await asyncio.sleep(LOOK_S)


async def settled(call: Call, request: RequestCall, answer: RequestAnswer) -> Answered:
    """Return an answer once what it says is durable."""
    ended = answer.get("state") not in RUNNING
    if ended and not await call.durable(request.vhost.name):
        call.refuse("precondition", "the journal cannot be written")
    return {**answer, "id": request.request["id"]}


def attempt(
    work: Callable[[], RequestAnswer | Generator[None, None, RequestAnswer] | None],
) -> RequestAnswer:
    """Run a step of a request; return its answer."""
    try:
        answer = work()
    except RefusedRequest as error:
        raise Refused(error.code, error.text) from None
    return answer if isinstance(answer, dict) else {}


OPERATIONS: dict[str, Operation] = {
    "move messages": run_job("move"),
    "copy messages": run_job("copy"),
    "requeue messages": run_job("requeue"),
    "delete messages": run_job("delete"),
    "show job": show_job,
    "cancel job": cancel_job,
}
