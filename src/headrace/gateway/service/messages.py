# SPDX-License-Identifier: Apache-2.0
"""Requests about the messages of queues: move, copy, delete, and give dead letters back.

One request looks at a part of a queue, and says where the next is to go on; so none takes long.
See :mod:`headrace.model.moving`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import ModelError
from headrace.model.moving import LOOKS_MAX, Errand, Target, to_one, to_origin
from headrace.model.selector import Selector, compile_selector
from headrace.model.selector.build import LENGTH_MAX

if TYPE_CHECKING:
    from headrace.gateway.service.requests import Answered, Call, Handler, Steps
    from headrace.model.queue import Queue


def move(call: Call) -> Steps:
    """Messages go from one queue to another."""
    source = call.queue("from")
    return run(call, source, to_one(destination(call, source)))


def copy(call: Call) -> Steps:
    """Messages go to another queue, and stay as well."""
    source = call.queue("from")
    return run(call, source, to_one(destination(call, source)), keeps=True)


def delete(call: Call) -> Steps:
    """Messages go."""
    return run(call, call.queue("from"), None)


def requeue(call: Call) -> Steps:
    """Dead letters go back to the queues in which they died."""
    source = call.queue("from")
    allowed, user, vhost = call.context.access.allowed, call.user, call.vhost.name
    origin = to_origin(call.vhost, lambda name: bool(allowed(user, vhost, "write", name)))
    return run(call, source, origin)


def destination(call: Call, source: Queue) -> Queue:
    """Return the queue that messages are to go to."""
    queue = call.queue("to", "write")
    if queue is source:
        call.refuse("precondition", f"queue '{queue.name}' is where the messages are already")
    return queue


def run(call: Call, source: Queue, target: Target | None, *, keeps: bool = False) -> Steps:
    """Do what a request asks for."""
    errand = Errand(
        call.vhost,
        source,
        target=target,
        keeps=keeps,
        selector=selector_of(call),
        count=call.number("count", LOOKS_MAX, least=1),
        first=call.number("first", 0),
        last=None if call.request.get("last") is None else call.number("last"),
        dry=call.flag("dry_run"),
    )
    return steps(errand)


def steps(errand: Errand) -> Steps:
    """Do an errand, and tell what was done."""
    done = yield from errand.run()
    answer: Answered = done._asdict()
    answer["complete"] = done.complete
    answer["ready"] = errand.source.message_count()
    return answer


def selector_of(call: Call) -> Selector | None:
    """Return the selector of a request; without one every message is selected."""
    text = call.request.get("selector", "")
    if not isinstance(text, str) or len(text) > LENGTH_MAX:
        call.refuse("bad-request", f"'selector' is no text of {LENGTH_MAX} characters at most")
    if not text.strip():
        return None
    try:
        return compile_selector(text)
    except ModelError as error:
        call.refuse("bad-request", error.text)


HANDLERS: dict[str, Handler] = {
    "messages.move": move,
    "messages.copy": copy,
    "messages.delete": delete,
    "messages.requeue": requeue,
}
