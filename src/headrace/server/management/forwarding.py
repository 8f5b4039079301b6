# SPDX-License-Identifier: Apache-2.0
"""Requests about a virtual host that another broker of the cluster serves.

The broker that receives a request opens a link (:mod:`headrace.server.cluster_relay.links`) to the
serving broker, sends the request and its lines, and receives the answer, in the format of the
management socket. The serving broker (:mod:`.forwarded_requests`) forwards nothing, so no request
circulates.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, NamedTuple

from headrace.server.cluster_relay.preamble import PreambleError
from headrace.server.definitions.document import ELEMENTS_MAX
from headrace.server.management.call import Call, JsonLine, OperationRefused
from headrace.server.observe.account_events import Operator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from headrace.gateway.connection.cluster_port import ServingBroker
    from headrace.server.cluster_relay.links import OperatorLink
    from headrace.server.management.managed_broker import ManagedBroker

POLL_S = 0.1  # The interval between checks whether a virtual host has an owner.
OWNER_S = 12.0  # The time to wait for a virtual host's owner: longer than a takeover.
# Fields that are not forwarded: the link carries the user, and the owner asks no other broker.
OMITTED_FIELDS = ("as", "peer", "everywhere", "broker")
BUSY_S = 10.0  # The interval between busy lines during the wait for an owner.


class NotReached(Exception):
    """The broker of a request did not answer, or no broker serves its virtual host."""


class ForwardedAnswer(NamedTuple):
    """The answer of another broker."""

    items: list[str]  # The lines before the last one, as JSON text.
    done: JsonLine  # The result in the last line.


def named_vhost(call: Call) -> str | None:
    """Return the virtual host of a request, wherever it is served; None if it names none.

    Raises:
        OperationRefused: the virtual host does not exist, or the user may not see it.
    """
    if call.request.get("vhost") is None:
        return None
    name = call.text("vhost")
    return name if call.is_elsewhere(name) else call.vhost().name


async def add_elsewhere(call: Call, answer: JsonLine) -> JsonLine:
    """Send the items of a list that other brokers have; return the last line of the whole list.

    Its field ``missing`` has the virtual hosts whose items could not be sent, with the reasons.
    """
    missing: dict[str, str] = {}
    count = answer.get("items", 0)
    assert isinstance(count, int)
    for vhost in sorted(filter(call.is_elsewhere, call.broker.access.snapshot.vhosts)):
        try:
            part = await pass_on(call, vhost, 0.0)
        except OperationRefused as error:
            missing[vhost] = error.text
            continue
        if part is None:
            missing[vhost] = "this broker has taken it meanwhile"
            continue
        part_count = part["items"]
        assert isinstance(part_count, int)
        count += part_count
    return {**answer, "items": count, **({"missing": missing} if missing else {})}


def other_brokers(broker: ManagedBroker) -> list[str]:
    """Return the names of the other running brokers of the cluster."""
    node = broker.node
    if node is None:
        return []
    return sorted(row.name for row in node.census.alive() if row.name != node.name)


async def pass_to_broker(call: Call, name: str) -> JsonLine:
    """Have another broker of the cluster answer a request; send its items as they arrive.

    Raises:
        OperationRefused: there is no such broker, it refused the request, or did not answer.
    """
    node = call.broker.node
    brokers = () if node is None or call.forwarded else node.brokers()
    broker = next((broker for broker in brokers if broker.name == name), None)
    if broker is None:
        raise OperationRefused("not-found", f"the cluster has no other broker '{name}'")
    request = {name: value for name, value in call.request.items() if name not in OMITTED_FIELDS}
    try:
        async with report_busy(call):
            link = await _open_link(call, broker)
        try:
            return await _exchange(call, link, request)
        finally:
            link.close()
    except (OSError, TimeoutError, PreambleError) as error:
        reason = f"broker '{name}' at {broker}: {str(error) or 'no answer'}"
        raise OperationRefused("precondition", reason) from None


async def pass_on(call: Call, vhost: str, wait_s: float) -> JsonLine | None:
    """Have the broker that serves a virtual host answer a request; send its items as they arrive.

    Wait ``wait_s`` for a reachable owner of the virtual host. Return None, and send nothing, if
    this broker serves the virtual host by then.

    Raises:
        OperationRefused: the broker refused the request, or none answered.
    """
    request = {name: value for name, value in call.request.items() if name not in OMITTED_FIELDS}
    request["vhost"] = vhost  # The request may name none, for the default one.
    try:
        async with report_busy(call):
            reached = await _link_to(call, vhost, wait_s)
        if reached is None:
            return None
        link, owner = reached
        try:
            return await _exchange(call, link, request)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer"
            raise NotReached(
                f"virtual host '{vhost}' (broker '{owner.name}' at {owner}): {reason}"
            ) from None
        finally:
            link.close()
    except NotReached as error:
        raise OperationRefused("precondition", str(error)) from None


async def _exchange(call: Call, link: OperatorLink, request: Mapping[str, object]) -> JsonLine:
    """Send a request and the lines that follow it; send the answer's items to the operator.

    Return the result of the answer.

    Raises:
        OSError, TimeoutError: the other broker is gone.
        OperationRefused: the other broker refused the request.
    """
    await link.send(json.dumps(request))
    if request.get("lines") is True:
        while (line := await call.receive()) is not None:
            await link.send(json.dumps(line))
        await link.send(json.dumps({"end": True}))
    while text := await link.receive():
        answer = json.loads(text)
        if "item" in answer:
            await call.send(answer["item"])
        elif "busy" in answer:
            await call.busy()
        elif "error" in answer:
            raise OperationRefused(str(answer["code"]), str(answer["error"]))
        elif "done" in answer:
            result: JsonLine = answer["done"]
            return result
    raise ConnectionError("it closed the link without an answer")


async def forward(
    call: Call,
    vhost: str,
    request: Mapping[str, object],
    lines: Iterable[Mapping[str, object]] | None = None,
    *,
    wait_s: float,
) -> ForwardedAnswer | None:
    """Send a request to the broker that serves a virtual host; return its answer.

    ``lines`` follow the request. Wait ``wait_s`` for a reachable owner of the virtual host. Return
    None, and send nothing, if this broker serves the virtual host by then.

    Raises:
        NotReached: no such broker answered in time.
        OperationRefused: the broker refused the request; the text names the virtual host.
    """
    async with report_busy(call):
        reached = await _link_to(call, vhost, wait_s)
        if reached is None:
            return None
        link, owner = reached
        server_text = f"virtual host '{vhost}' (broker '{owner.name}' at {owner})"
        try:
            await link.send(json.dumps(request))
            if lines is not None:
                for line in lines:
                    await link.send(json.dumps(line))
                await link.send(json.dumps({"end": True}))
            return await _read_answer(link, server_text)
        except (OSError, TimeoutError) as error:
            raise NotReached(f"{server_text}: {str(error) or 'no answer'}") from None
        finally:
            link.close()


async def _read_answer(link: OperatorLink, server_text: str) -> ForwardedAnswer:
    """Read an answer to its end.

    Raises:
        OSError, TimeoutError: the answer has no end.
        OperationRefused: the answer is an error.
    """
    items: list[str] = []
    while text := await link.receive():
        if text.startswith('{"item"'):
            items.append(text)
            if len(items) > ELEMENTS_MAX:
                raise OperationRefused("limit", f"{server_text}: more than {ELEMENTS_MAX} elements")
            continue
        answer = json.loads(text)
        if "error" in answer:
            raise OperationRefused(str(answer["code"]), f"{server_text}: {answer['error']}")
        if "done" in answer:
            return ForwardedAnswer(items, answer["done"])
    raise ConnectionError("it closed the link without an answer")


async def _link_to(
    call: Call, vhost: str, wait_s: float
) -> tuple[OperatorLink, ServingBroker] | None:
    """Open a link to the broker that serves a virtual host; return None if that is this broker.

    Raises:
        NotReached: no link could be opened in time.
    """
    broker = call.broker
    assert broker.node is not None
    deadline_s = broker.node.loop.time() + wait_s
    last_error = "no broker serves it"
    while True:
        if vhost in broker.vhosts:
            return None
        owner = broker.node.serving(vhost)
        if owner is not None:
            try:
                link = await _open_link(call, owner)
            except (OSError, TimeoutError, PreambleError) as error:
                last_error = f"broker '{owner.name}' at {owner}: {str(error) or 'no answer'}"
            else:
                return link, owner
        if broker.node.loop.time() >= deadline_s:
            raise NotReached(f"virtual host '{vhost}': {last_error}")
        await asyncio.sleep(POLL_S)


async def _open_link(call: Call, broker: ServingBroker) -> OperatorLink:
    """Open a link to another broker on behalf of the operator. Raises as ``OperatorLinks.open``."""
    assert call.broker.links is not None
    actor = call.actor
    name = "" if actor is None else actor.name
    address = actor.peer if isinstance(actor, Operator) else ""
    return await call.broker.links.open(broker, call.user, call.operator, name, address)


@contextlib.asynccontextmanager
async def report_busy(call: Call) -> AsyncIterator[None]:
    """Send busy lines while the block runs, which sends nothing else."""

    async def send_busy_lines() -> None:
        while True:
            await asyncio.sleep(BUSY_S)
            await call.busy()

    task = asyncio.create_task(send_busy_lines())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError, TimeoutError):
            await task
