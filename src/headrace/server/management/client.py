# SPDX-License-Identifier: Apache-2.0
"""Requests of one operator, read as lines of JSON and answered by lines.

The lines come from the management socket (:mod:`.socket`) or from another broker of the cluster
(:mod:`.forwarded_requests`). :mod:`headrace.server.observe.audited_events` decides which requests
are written to the audit log.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from headrace.exact_json import UnfitValue, read_json
from headrace.gateway.messages.pending_confirms import NOT_DURABLE
from headrace.gateway.requests.requests import refusal_code
from headrace.management_socket import CONSOLE_AGENT
from headrace.model.errors import ModelError
from headrace.model.policy.accounts import AccountError
from headrace.server.definitions.document import DocumentError
from headrace.server.management.call import (
    SLICE_S,
    Call,
    JsonLine,
    OperationRefused,
    ServedElsewhere,
    Steps,
)
from headrace.server.management.forwarding import OWNER_S, add_elsewhere, pass_on
from headrace.server.management.operations import FORWARDED, SHARED_LISTS
from headrace.server.management.resources.logins import parse_peer
from headrace.server.net.transport import clock_ms
from headrace.server.observe.account_events import Operator
from headrace.server.observe.audited_events import REPAIRS, is_audited
from headrace.store.errors import StoreError

if TYPE_CHECKING:
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.operation_table import OperationRow

log = logging.getLogger(__name__)

STEPS_PER_SLICE = 64  # Steps of a list before the loop serves others, if SLICE_S is not over.
BUSY_S = 10.0  # Seconds without output before a busy line is sent.
# Fields that the audit log records under other names, or must not record.
UNAUDITED = frozenset(("do", "as", "peer", "agent", "payload", "username", "password", "token"))


class OperatorClient(ABC):
    """The requests of one operator, which are served one after the other."""

    def __init__(
        self,
        broker: ManagedBroker,
        operations: Mapping[str, OperationRow],
        operator: str,
        actor: Operator,
    ) -> None:
        """Serve the requests of one operator.

        Args:
            broker: the broker that serves the requests.
            operations: each operation by its name.
            operator: names the operator in the log.
            actor: names the operator in events and in the audit log.
        """
        self.broker = broker
        self.operations = operations
        self.operator = operator
        self.actor = actor
        self.current: JsonLine = {}  # The request in progress.
        self.has_unread_lines = False  # Lines that follow the request are not read yet.
        self.acting: Operator | None = None  # The user of the request; None: the system user.

    @abstractmethod
    async def read_line(self) -> str | bytes:
        """Return the next line; empty at the end.

        Raises:
            OperationRefused: the line is too long.
            OSError, TimeoutError: no line came.
        """

    @abstractmethod
    async def send(self, *lines: str) -> None:
        """Send lines, and wait while too much is unread.

        Raises:
            OSError, TimeoutError: the operator is gone, or does not read.
        """

    async def receive(self) -> JsonLine | None:
        """Return the object of the next line; None at the end, or at ``{"end": true}``.

        Raises:
            OperationRefused: the line is too long, or is not an object.
            OSError, TimeoutError: no line came.
        """
        line = await self.read_line()
        if not line:
            return None
        try:
            request = read_json(line)
        except UnfitValue as error:
            raise OperationRefused(
                "bad-request", f"each line must be a JSON object: {error}"
            ) from None
        except ValueError:
            raise OperationRefused("bad-request", "each line must be a JSON object") from None
        if not isinstance(request, dict):
            raise OperationRefused("bad-request", "each line must be a JSON object")
        if request.get("end") is True and len(request) == 1:
            self.has_unread_lines = False
            return None
        return request

    async def run(self, request: JsonLine) -> None:
        """Run a request, and answer it."""
        name = request.get("do")
        self.current = request
        self.acting = None
        operation = self.operations.get(name) if isinstance(name, str) else None
        self.has_unread_lines = request.get("lines") is True or (
            operation is not None and operation.takes_lines
        )
        if operation is None:
            await self.fail("bad-request", f"there is no operation {name!r}")
            return
        broker = self.broker
        broker.counters.now_ms = clock_ms()
        call = Call(
            broker, request, operator=self.operator, actor=self.actor, send=self.send_item,
            busy=self.busy, receive=self.receive,
        )  # fmt: skip
        try:
            self.act_as(call)
            self.check_auditable(request)
            answer = await self.answer(call, operation)
        except OperationRefused as error:
            await self.fail(error.code, error.text)
        except ModelError as error:
            broker.access.last_audited = ""  # Only connections use this attribute.
            await self.fail(refusal_code(error), error.text)
        except DocumentError as error:
            await self.fail("bad-request", error.text)
        except (AccountError, StoreError) as error:
            await self.fail("precondition", str(error))
        except (ConnectionError, TimeoutError):
            raise  # The operator has disconnected.
        except OSError as error:
            await self.fail("internal", f"{error.filename or 'disk'}: {error.strerror or error}")
        except Exception:
            log.exception("management: %s failed", name)
            await self.fail("internal", "internal error; see the broker's log")
        else:
            self.audit(request)
            self.turn()
            # An operation that only reads does not wait: operators need it while the disk fails.
            # An answer that was passed on is durable at the broker that serves the virtual host.
            must_wait = not operation.reads and not call.passed_on
            if must_wait and not await broker.unsynced.wait():
                await self.fail("precondition", NOT_DURABLE)
                return
            await self.send(json.dumps({"done": answer}))

    async def answer(self, call: Call, operation: OperationRow) -> JsonLine:
        """Run an operation, here or at the broker of the cluster that serves its virtual host."""
        try:
            answer = await self.run_here(call, operation)
            spans_brokers = operation.name in SHARED_LISTS and call.flag("everywhere")
            if spans_brokers and call.request.get("vhost") is None:
                answer = await add_elsewhere(call, answer)
            return answer
        except ServedElsewhere as error:
            if operation.name not in FORWARDED:
                raise
            passed_on = await pass_on(call, error.vhost, OWNER_S)
            if passed_on is None:  # This broker serves the virtual host by now.
                return await self.run_here(call, operation)
            call.passed_on = True
            return passed_on

    async def run_here(self, call: Call, operation: OperationRow) -> JsonLine:
        """Check and run an operation; send its items, and return its result.

        Raises:
            ServedElsewhere: another broker serves its virtual host; nothing was done or sent.
        """
        operation.check(call)
        with call.acting():
            outcome = operation.run(call)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if isinstance(outcome, Generator):
            return await self.stream(call, outcome)
        return outcome

    def act_as(self, call: Call) -> None:
        """Act as the user of the ticket in ``as``; without one, as the system user.

        Raises:
            OperationRefused: the ticket is unknown, or has ended.
        """
        if "as" not in call.request:
            return
        text = call.text("peer", "")
        peer = parse_peer(text)
        if text and peer is None:
            raise OperationRefused("bad-request", "'peer' is not an address with a port")
        user = self.broker.tickets.find_user(call.text("as"), peer)
        if user is None:
            raise OperationRefused("refused", "the ticket is unknown, or has ended")
        call.user = user
        call.actor = self.acting = Operator(user.name, str(peer or user.peer))
        call.operator = f"user '{user.name}' from {call.actor.peer}, for {self.operator}"

    def audit(self, request: JsonLine, reason: str = "") -> None:
        """Audit a request, with the reason if it was refused."""
        audit = self.broker.audit
        if audit.active and (reason or self.is_audited(request)):
            actor = self.acting or self.actor
            audit.record(
                "command",
                user=actor,
                peer=actor.peer,
                allowed=not reason,
                reason=reason,
                command=request.get("do"),
                agent=request.get("agent"),
                via=None if self.acting is None else "console",
                request={name: value for name, value in request.items() if name not in UNAUDITED},
            )

    def check_auditable(self, request: JsonLine) -> None:
        """Refuse a request that a strict audit log cannot record.

        Raises:
            OperationRefused: it is refused.
        """
        reason = self.broker.audit.refusal()
        if reason and request.get("do") not in REPAIRS and self.is_audited(request):
            raise OperationRefused("precondition", f"command {reason}")

    def is_audited(self, request: JsonLine) -> bool:
        """Return True if a request is audited even if it is allowed."""
        name = request.get("do")
        operation = self.operations.get(name) if isinstance(name, str) else None
        reads = operation is not None and operation.reads
        return is_audited(request, reads=reads, by_console=self.is_by_console(request))

    def is_by_console(self, request: JsonLine) -> bool:
        """Return True if a request has a ticket, or the console sends it for no user.

        A peer may claim the latter. It escapes only the audit of reads that are not worth a line.
        """
        return self.acting is not None or request.get("agent") == CONSOLE_AGENT

    async def stream(self, call: Call, steps: Steps) -> JsonLine:
        """Send the lines of a generator, slice by slice; return its result."""
        sent_s = time.monotonic()
        with contextlib.closing(steps):
            while True:
                lines: list[str] = []
                began_s = time.monotonic()
                for _ in range(STEPS_PER_SLICE):
                    try:
                        with call.acting():
                            item = next(steps)
                    except StopIteration as end:
                        await self.send(*lines)
                        return dict(end.value)
                    if item is not None:
                        lines.append(json.dumps({"item": item}))
                    if time.monotonic() - began_s > SLICE_S:
                        break
                if lines:
                    sent_s = began_s
                elif began_s - sent_s > BUSY_S:
                    sent_s = began_s
                    lines.append(json.dumps({"busy": True}))
                self.turn()
                await self.send(*lines)
                await asyncio.sleep(0)  # Serve others, even if send() did not have to wait.

    async def send_item(self, item: JsonLine) -> None:
        """Send one line of an answer."""
        self.turn()
        await self.send(json.dumps({"item": item}))

    async def busy(self) -> None:
        """Send a keep-alive line while the operation runs."""
        await self.send(json.dumps({"busy": True}))

    async def fail(self, code: str, text: str) -> None:
        """Answer with an error."""
        request, self.current = self.current, {}
        if request:
            self.audit(request, text)
        self.turn()
        await self.send(json.dumps({"error": text, "code": code}))

    def turn(self) -> None:
        """Send the output that the operation caused for clients of the broker."""
        self.broker.reactor.turn()
