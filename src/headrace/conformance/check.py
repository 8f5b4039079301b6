# SPDX-License-Identifier: Apache-2.0
"""A check, and its access to a broker."""

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

PREFIX = "headrace.conformance."  # Of all names that checks use.


@dataclass(slots=True)
class Site:
    """One broker in one version, for one check: peers, and names of the check's own."""

    settings: Settings
    version: Version
    stack: contextlib.ExitStack
    queues: list[str] = field(default_factory=list)
    exchanges: list[str] = field(default_factory=list)

    def peer(self, window: int = 0) -> Peer:
        """Return a connection with channel 1 open, which is closed after the check."""
        return self.raw(window).open()

    def raw(self, window: int = 0) -> Peer:
        """Return a connection on which nothing was sent; a socket of `window` bytes if not 0."""
        peer = Peer.at(self.settings, self.version, window=window)
        self.stack.callback(peer.close)
        return peer

    def controls(self) -> ControlPeer:
        """Return a connection of 0-10 on which nothing was sent."""
        peer = ControlPeer.at(self.settings)
        self.stack.callback(peer.drop)
        return peer

    def session(self) -> SessionPeer:
        """Return a connection of 0-10 with one session, which is closed after the check."""
        peer = SessionPeer(self.settings)
        self.stack.callback(peer.close)
        return peer

    def queue(self) -> str:
        """Return an unused name for a queue, which is deleted after the check."""
        self.queues.append(f"{PREFIX}{os.getpid()}.{next(_NUMBERS)}")
        return self.queues[-1]

    def peer_with_queue(self) -> tuple[Peer, str]:
        """Return a connection with channel 1 open, and a queue that it declared."""
        peer = self.peer()
        return peer, self.declare_queue_on(peer)

    def declare_queue_on(self, peer: Peer) -> str:
        """Declare a queue; return its name."""
        queue = self.queue()
        peer.declare(queue)
        return queue

    def session_queue(self) -> tuple[SessionPeer, str]:
        """Return a connection of 0-10 with one session, and a queue that it declared."""
        peer = self.session()
        return peer, peer.declare(self.queue())

    def exchange(self) -> str:
        """Return an unused name for an exchange, which is deleted after the check."""
        self.exchanges.append(f"{PREFIX}{os.getpid()}.{next(_NUMBERS)}")
        return self.exchanges[-1]

    def clean(self) -> None:
        """Delete the objects of the check."""
        if self.version is V0_10:
            self._clean_0_10()
            return
        deletes = [(QueueDelete(queue=name), QueueDeleteOk) for name in self.queues]
        more = [(ExchangeDelete(exchange=name), ExchangeDeleteOk) for name in self.exchanges]
        for method, answer in itertools.chain(deletes, more):
            with contextlib.suppress(BrokenRule, OSError):
                peer = Peer.at(self.settings, self.version)
                self.stack.callback(peer.close)
                peer.open().call(method, answer)

    def _clean_0_10(self) -> None:
        commands: list[codec_0_10.Command] = [
            codec_0_10.QueueDelete(queue=name) for name in self.queues
        ]
        # An exchange stays while another one has it as alternate: the youngest goes first.
        commands += [codec_0_10.ExchangeDelete(exchange=name) for name in reversed(self.exchanges)]
        if not commands:
            return
        with contextlib.suppress(ClientError, OSError), contextlib.closing(self.session()) as peer:
            for command in commands:
                try:
                    peer.call(command)
                except ChannelClosed:  # It does not exist.
                    peer.session = peer.another()


_NUMBERS = itertools.count(1)


@contextlib.contextmanager
def site(settings: Settings, version: Version) -> Iterator[Site]:
    """Yield a site, and clean up after the check."""
    with contextlib.ExitStack() as stack:
        context = Site(settings, version, stack)
        stack.callback(context.clean)
        yield context


@dataclass(frozen=True, slots=True)
class Check:
    """One check, which raises BrokenRule when the broker breaks its rules."""

    name: str
    title: str  # The required behaviour, in our words.
    rules: tuple[str, ...]
    run: Callable[[Site], None]

    def rules_of(self, version: Version) -> tuple[str, ...]:
        """Return its rules for a version; those of 0-8 are the rules of 0-9 in other words."""
        family = "0-9" if version is V0_8 else version.label
        return tuple(rule for rule in self.rules if RULES[rule].version == family)

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions for which it has rules."""
        return tuple(version for version in (V0_8, V0_9, V0_9_1, V0_10) if self.rules_of(version))


CHECKS: dict[str, Check] = {}


def check(*rules: str) -> Callable[[Callable[[Site], None]], Callable[[Site], None]]:
    """Make a function a check of these rules; its docstring is the title."""

    def register(function: Callable[[Site], None]) -> Callable[[Site], None]:
        unknown = [rule for rule in rules if rule not in RULES]
        assert not unknown, unknown
        name = function.__name__
        assert name not in CHECKS, name
        title = (function.__doc__ or "").strip().rstrip(".")
        CHECKS[name] = Check(name, title, rules, function)
        return function

    return register
