# SPDX-License-Identifier: Apache-2.0
"""Commands of a session that answer questions, and its transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

from headrace.client.errors import ConnectionLost, UsageError
from headrace.protocol.codec_0_10 import (
    Command,
    DtxCommit,
    DtxEnd,
    DtxForget,
    DtxGetTimeout,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxSetTimeout,
    DtxStart,
    ExchangeBound,
    ExchangeBoundResult,
    ExchangeQuery,
    ExchangeQueryResult,
    GetTimeoutResult,
    QueueQuery,
    QueueQueryResult,
    RecoverResult,
    Struct,
    TxCommit,
    TxRollback,
    TxSelect,
    XaResult,
    Xid,
)
from headrace.spec.reply_0_10 import XaStatus
from headrace.wire.types_0_10 import Value

SessionArguments = Mapping[str, Value]
Result = TypeVar("Result", bound=Struct)


class SessionQueries(ABC):
    """Queries, and local and distributed transactions."""

    def __init__(self) -> None:
        self._transactional = ""  # "tx" or "dtx" after their select.

    @abstractmethod
    async def call(self, command: Command) -> Struct | None:
        """Send a command, wait for its completion, and return its result, if it has one."""

    @abstractmethod
    def _all_explicit(self) -> bool:
        """Return True if every subscription has messages accepted explicitly."""

    # --- Queries ------------------------------------------------------------------------------

    async def query_queue(self, queue: str) -> QueueQueryResult | None:
        """Return the properties of a queue; None when it does not exist."""
        result = await self._result(QueueQuery(queue=queue), QueueQueryResult)
        return result if result.queue else None

    async def query_exchange(self, name: str) -> ExchangeQueryResult | None:
        """Return the properties of an exchange; None when it does not exist."""
        result = await self._result(ExchangeQuery(name=name), ExchangeQueryResult)
        return None if result.not_found else result

    async def query_bound(
        self,
        exchange: str = "",
        queue: str | None = None,
        binding_key: str | None = None,
        arguments: SessionArguments | None = None,
    ) -> ExchangeBoundResult:
        """Return which of exchange, queue, key and arguments do not exist or are not bound."""
        command = ExchangeBound(
            exchange=exchange,
            queue=queue,
            binding_key=binding_key,
            arguments=None if arguments is None else dict(arguments),
        )
        return await self._result(command, ExchangeBoundResult)

    # --- Transactions -------------------------------------------------------------------------

    async def tx_select(self) -> None:
        """Make the session transactional: transfers and settlements wait for a commit."""
        if self._transactional:
            raise UsageError(f"{self!r} is transactional already")
        if not self._all_explicit():
            raise UsageError("a transactional session needs subscriptions with accept=True")
        self._transactional = "tx"
        await self.call(TxSelect())

    async def tx_commit(self) -> None:
        """Commit everything since the last commit or rollback."""
        self._check_tx("tx")
        await self.call(TxCommit())

    async def tx_rollback(self) -> None:
        """Undo everything since the last commit or rollback."""
        self._check_tx("tx")
        await self.call(TxRollback())

    async def dtx_select(self) -> None:
        """Use the session for distributed transactions."""
        if self._transactional == "tx":
            raise UsageError(f"{self!r} has transactions of its own")
        self._transactional = "dtx"
        await self.call(DtxSelect())

    async def dtx_start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> XaStatus:
        """Begin work for a transaction branch, join it, or resume it."""
        self._check_tx("dtx")
        return await self._xa(DtxStart(xid=xid, join=join, resume=resume))

    async def dtx_end(self, xid: Xid, *, fail: bool = False, suspend: bool = False) -> XaStatus:
        """End the work for a branch: as done, suspended (`suspend`) or failed (`fail`)."""
        self._check_tx("dtx")
        return await self._xa(DtxEnd(xid=xid, fail=fail, suspend=suspend))

    async def dtx_prepare(self, xid: Xid) -> XaStatus:
        """Prepare a branch: from now on the broker can commit it in any case."""
        return await self._xa(DtxPrepare(xid=xid))

    async def dtx_commit(self, xid: Xid, *, one_phase: bool = False) -> XaStatus:
        """Commit a branch that is prepared, or with `one_phase` one that has ended."""
        return await self._xa(DtxCommit(xid=xid, one_phase=one_phase))

    async def dtx_rollback(self, xid: Xid) -> XaStatus:
        """Roll back a branch."""
        return await self._xa(DtxRollback(xid=xid))

    async def dtx_forget(self, xid: Xid) -> None:
        """Forget a branch that was completed heuristically."""
        await self.call(DtxForget(xid=xid))

    async def dtx_recover(self) -> list[Xid]:
        """Return the branches that are prepared or were completed heuristically."""
        return (await self._result(DtxRecover(), RecoverResult)).in_doubt or []

    async def dtx_set_timeout(self, xid: Xid, timeout_s: int) -> None:
        """Set the seconds in which a branch must be prepared, or is rolled back; 0: the default."""
        await self.call(DtxSetTimeout(xid=xid, timeout=timeout_s))

    async def dtx_get_timeout(self, xid: Xid) -> int:
        """Return the timeout of a branch in seconds."""
        return (await self._result(DtxGetTimeout(xid=xid), GetTimeoutResult)).timeout or 0

    # --- Inside -------------------------------------------------------------------------------

    def _check_tx(self, kind: str) -> None:
        if self._transactional != kind:
            raise UsageError(f"{self!r} was not selected for {kind}")

    async def _result(self, command: Command, kind: type[Result]) -> Result:
        return self.as_result(await self.call(command), type(command), kind)

    def as_result(self, value: Struct | None, command: type[Command], kind: type[Result]) -> Result:
        """Return the result of a command; ConnectionLost when it has another type."""
        if not isinstance(value, kind):
            raise ConnectionLost(f"{command.NAME} resulted in {value!r}")
        return value

    async def _xa(self, command: Command) -> XaStatus:
        return XaStatus((await self._result(command, XaResult)).status or 0)
