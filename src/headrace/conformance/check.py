# SPDX-License-Identifier: Apache-2.0
"""Checks of the standards' rules, and the connections and names that a check uses."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.errors import ChannelClosed, ClientError
from headrace.conformance.peer import BrokenRule, ControlPeer, Peer
from headrace.conformance.rules import RULES
from headrace.conformance.session_peer import SessionPeer
from headrace.protocol import codec_0_10
from headrace.protocol.codec_0_x import (
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueDelete,
    QueueDeleteOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version

if TYPE_CHECKING:
    from headrace.client.url import Settings

PREFIX = "headrace.conformance."  # The names of all queues and exchanges of checks begin so.


@dataclass(slots=True)
class Site:
    """A broker and a version of AMQP, for a check.

    The site opens connections, which are closed after the check, and creates names of queues and
    exchanges, which are deleted after it.
    """

    settings: Settings
    version: Version
    stack: contextlib.ExitStack
    queues: list[str] = field(default_factory=list)
    exchanges: list[str] = field(default_factory=list)

    def peer(self, window: int = 0) -> Peer:
        """Return a new connection with channel 1 open."""
        return self.raw(window).open()

    def raw(self, window: int = 0) -> Peer:
        """Return a new connection before the protocol header.

        `window` is the size of the socket's receive buffer in bytes; 0 is the system's default.
        """
        peer = Peer.connect_to(self.settings, self.version, window=window)
        self.stack.callback(peer.close)
        return peer

    def controls(self) -> ControlPeer:
        """Return a new connection of 0-10 before the protocol header."""
        peer = ControlPeer.connect_to(self.settings)
        self.stack.callback(peer.drop)
        return peer

    def session(self) -> SessionPeer:
        """Return a new connection of 0-10 with a session."""
        peer = SessionPeer(self.settings)
        self.stack.callback(peer.close)
        return peer

    def queue(self) -> str:
        """Return an unused name for a queue."""
        self.queues.append(f"{PREFIX}{os.getpid()}.{next(_NUMBERS)}")
        return self.queues[-1]

    def peer_with_queue(self) -> tuple[Peer, str]:
        """Return a new connection with channel 1 open, and a queue that it has declared."""
        peer = self.peer()
        return peer, self.declare_queue_on(peer)

    def declare_queue_on(self, peer: Peer) -> str:
        """Declare a queue with an unused name; return the name."""
        queue = self.queue()
        peer.declare(queue)
        return queue

    def session_queue(self) -> tuple[SessionPeer, str]:
        """Return a new connection of 0-10 with a session, and a queue that it has declared."""
        peer = self.session()
        return peer, peer.declare(self.queue())

    def exchange(self) -> str:
        """Return an unused name for an exchange."""
        self.exchanges.append(f"{PREFIX}{os.getpid()}.{next(_NUMBERS)}")
        return self.exchanges[-1]

    def clean(self) -> None:
        """Delete the queues and exchanges of the check, if they exist."""
        if self.version is V0_10:
            self._clean_0_10()
            return
        queue_deletes = [(QueueDelete(queue=name), QueueDeleteOk) for name in self.queues]
        exchange_deletes = [
            (ExchangeDelete(exchange=name), ExchangeDeleteOk) for name in self.exchanges
        ]
        for method, answer in itertools.chain(queue_deletes, exchange_deletes):
            with contextlib.suppress(BrokenRule, OSError):
                peer = Peer.connect_to(self.settings, self.version)
                self.stack.callback(peer.close)
                peer.open().call(method, answer)

    def _clean_0_10(self) -> None:
        commands: list[codec_0_10.Command] = [
            codec_0_10.QueueDelete(queue=name) for name in self.queues
        ]
        # An alternate exchange cannot be deleted before the exchanges that refer to it.
        commands += [codec_0_10.ExchangeDelete(exchange=name) for name in reversed(self.exchanges)]
        if not commands:
            return
        with contextlib.suppress(ClientError, OSError), contextlib.closing(self.session()) as peer:
            for command in commands:
                try:
                    peer.call(command)
                except ChannelClosed:  # The queue or exchange does not exist.
                    peer.session = peer.open_session()


_NUMBERS = itertools.count(1)


@contextlib.contextmanager
def site(settings: Settings, version: Version) -> Iterator[Site]:
    """Yield a site for a check; after it, delete its objects and close its connections."""
    with contextlib.ExitStack() as stack:
        context = Site(settings, version, stack)
        stack.callback(context.clean)
        yield context


@dataclass(frozen=True, slots=True)
class Check:
    """A check of rules. `run` raises BrokenRule if the broker breaks them."""

    name: str
    title: str  # The required behaviour, from the function's docstring.
    rules: tuple[str, ...]  # Ids of the rules, as in rules.toml.
    run: Callable[[Site], None]

    def rules_for(self, version: Version) -> tuple[str, ...]:
        """Return the check's rules for a version. 0-8 has the rules of 0-9."""
        family = "0-9" if version is V0_8 else version.label
        return tuple(rule for rule in self.rules if RULES[rule].version == family)

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions for which the check has rules."""
        return tuple(version for version in (V0_8, V0_9, V0_9_1, V0_10) if self.rules_for(version))


CHECKS: dict[str, Check] = {}


def check(*rules: str) -> Callable[[Callable[[Site], None]], Callable[[Site], None]]:
    """Register the decorated function as a check of these rules, with its docstring as title."""

    def register(function: Callable[[Site], None]) -> Callable[[Site], None]:
        unknown = [rule for rule in rules if rule not in RULES]
        assert not unknown, unknown
        name = function.__name__
        assert name not in CHECKS, name
        title = (function.__doc__ or "").strip().rstrip(".")
        CHECKS[name] = Check(name, title, rules, function)
        return function

    return register
