# SPDX-License-Identifier: Apache-2.0
"""What a session of AMQP 0-10 asks in one command: queries, and transactions of both kinds."""

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


class SessionCalls(ABC):
    """The part of a session that is calls of the broker, and answers."""

    def __init__(self) -> None:
        self._transactional = ""  # Or "tx" or "dtx".

    @abstractmethod
    async def call(self, command: Command) -> Struct | None:
        """Send any command, wait until it is completed, and return its result if it has one."""

    @abstractmethod
    def _all_explicit(self) -> bool:
        """Whether all messages that come have to be accepted."""

    # --- Queries ------------------------------------------------------------------------------

    async def query_queue(self, queue: str) -> QueueQueryResult | None:
        """What the broker says of a queue; None when there is none of that name."""
        result = await self._result(QueueQuery(queue=queue), QueueQueryResult)
        return result if result.queue else None

    async def query_exchange(self, name: str) -> ExchangeQueryResult | None:
        """What the broker says of an exchange; None when there is none of that name."""
        result = await self._result(ExchangeQuery(name=name), ExchangeQueryResult)
        return None if result.not_found else result

    async def query_bound(
        self,
        exchange: str = "",
        queue: str | None = None,
        binding_key: str | None = None,
        arguments: SessionArguments | None = None,
    ) -> ExchangeBoundResult:
        """Which of exchange, queue, key and arguments is not there or not bound."""
        command = ExchangeBound(
            exchange=exchange,
            queue=queue,
            binding_key=binding_key,
            arguments=None if arguments is None else dict(arguments),
        )
        return await self._result(command, ExchangeBoundResult)

    # --- Transactions -------------------------------------------------------------------------

    async def tx_select(self) -> None:
        """From now on transfers and settlements wait for a commit."""
        if self._transactional:
            raise UsageError(f"{self!r} is transactional already")
        if not self._all_explicit():
            raise UsageError("a transactional session needs subscriptions with accept=True")
        self._transactional = "tx"
        await self.call(TxSelect())

    async def tx_commit(self) -> None:
        """Have all since the last commit or rollback take effect."""
        self._check_tx("tx")
        await self.call(TxCommit())

    async def tx_rollback(self) -> None:
        """Forget all since the last commit or rollback."""
        self._check_tx("tx")
        await self.call(TxRollback())

    async def dtx_select(self) -> None:
        """Use the session for distributed transactions."""
        if self._transactional == "tx":
            raise UsageError(f"{self!r} has transactions of its own")
        self._transactional = "dtx"
        await self.call(DtxSelect())

    async def dtx_start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> XaStatus:
        """Begin work for a transaction branch, join it, or go on with it."""
        self._check_tx("dtx")
        return await self._xa(DtxStart(xid=xid, join=join, resume=resume))

    async def dtx_end(self, xid: Xid, *, fail: bool = False, suspend: bool = False) -> XaStatus:
        """End the work for a branch, for now (`suspend`) or as a failure (`fail`)."""
        self._check_tx("dtx")
        return await self._xa(DtxEnd(xid=xid, fail=fail, suspend=suspend))

    async def dtx_prepare(self, xid: Xid) -> XaStatus:
        """Have the broker keep a branch so that it can be committed in any case."""
        return await self._xa(DtxPrepare(xid=xid))

    async def dtx_commit(self, xid: Xid, *, one_phase: bool = False) -> XaStatus:
        """Commit a branch: prepared, or (`one_phase`) ended only."""
        return await self._xa(DtxCommit(xid=xid, one_phase=one_phase))

    async def dtx_rollback(self, xid: Xid) -> XaStatus:
        """Undo a branch."""
        return await self._xa(DtxRollback(xid=xid))

    async def dtx_forget(self, xid: Xid) -> None:
        """Have the broker forget a branch that was decided by heuristics."""
        await self.call(DtxForget(xid=xid))

    async def dtx_recover(self) -> list[Xid]:
        """The branches that are prepared, or were decided by heuristics."""
        return (await self._result(DtxRecover(), RecoverResult)).in_doubt or []

    async def dtx_set_timeout(self, xid: Xid, timeout_s: int) -> None:
        """Have a branch rolled back when it is not prepared in time; 0 is the default again."""
        await self.call(DtxSetTimeout(xid=xid, timeout=timeout_s))

    async def dtx_get_timeout(self, xid: Xid) -> int:
        """How many seconds a branch has."""
        return (await self._result(DtxGetTimeout(xid=xid), GetTimeoutResult)).timeout or 0

    # --- Inside -------------------------------------------------------------------------------

    def _check_tx(self, kind: str) -> None:
        if self._transactional != kind:
            raise UsageError(f"{self!r} was not selected for {kind}")

    async def _result(self, command: Command, kind: type[Result]) -> Result:
        value = await self.call(command)
        if not isinstance(value, kind):
            raise ConnectionLost(f"{command.NAME} resulted in {value!r}")
        return value

    async def _xa(self, command: Command) -> XaStatus:
        return XaStatus((await self._result(command, XaResult)).status or 0)
