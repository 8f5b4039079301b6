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
        """A connection with channel 1 open; it is closed when the check is over."""
        return self.raw(window).open()

    def raw(self, window: int = 0) -> Peer:
        """A connection on which nothing was said; a socket of `window` octets if not 0."""
        peer = Peer.at(self.settings, self.version, window=window)
        self.stack.callback(peer.close)
        return peer

    def controls(self) -> ControlPeer:
        """A connection of 0-10 on which nothing was said."""
        peer = ControlPeer.at(self.settings)
        self.stack.callback(peer.drop)
        return peer

    def session(self) -> SessionPeer:
        """A connection of 0-10 with one session; it is closed when the check is over."""
        peer = SessionPeer(self.settings)
        self.stack.callback(peer.close)
        return peer

    def queue(self) -> str:
        """The name of a queue that does not exist; should it come to be, it is deleted."""
        self.queues.append(f"{PREFIX}{os.getpid()}.{next(_NUMBERS)}")
        return self.queues[-1]

    def peer_with_queue(self) -> tuple[Peer, str]:
        """A connection with channel 1 open, and a queue that it declared."""
        peer = self.peer()
        return peer, self.declare_queue_on(peer)

    def declare_queue_on(self, peer: Peer) -> str:
        """A queue that the peer declared."""
        queue = self.queue()
        peer.declare(queue)
        return queue

    def session_queue(self) -> tuple[SessionPeer, str]:
        """A connection of 0-10 with one session, and a queue that it declared."""
        peer = self.session()
        return peer, peer.declare(self.queue())

    def exchange(self) -> str:
        """The name of an exchange that does not exist; should it come to be, it is deleted."""
        self.exchanges.append(f"{PREFIX}{os.getpid()}.{next(_NUMBERS)}")
        return self.exchanges[-1]

    def clean(self) -> None:
        """Delete what the check made."""
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
    """A site, and an end of all that a check leaves."""
    with contextlib.ExitStack() as stack:
        one = Site(settings, version, stack)
        stack.callback(one.clean)
        yield one


@dataclass(frozen=True, slots=True)
class Check:
    """One check: it raises BrokenRule when the broker does not do as its rules say."""

    name: str
    title: str  # What the broker must do, in our words.
    rules: tuple[str, ...]
    run: Callable[[Site], None]

    def rules_of(self, version: Version) -> tuple[str, ...]:
        """Its rules for a version; 0-8 says what 0-9 says, in other words."""
        family = "0-9" if version is V0_8 else version.label
        return tuple(rule for rule in self.rules if RULES[rule].version == family)

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions that it says something about."""
        return tuple(one for one in (V0_8, V0_9, V0_9_1, V0_10) if self.rules_of(one))


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
