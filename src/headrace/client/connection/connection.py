# SPDX-License-Identifier: Apache-2.0
"""A connection for programs: channels, sessions, streams, and reconnecting."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.client.channel.channel import Channel
from headrace.client.channel.closing import AsyncClosing
from headrace.client.channel.publishing import UNCONFIRMED_MAX
from headrace.client.connection.brokers import BrokerList
from headrace.client.connection.reconnect import Reconnect, Topology
from headrace.client.errors import (
    AuthenticationFailed,
    BufferOverflow,
    ChannelClosed,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ProtocolViolation,
    ResourceLocked,
    Returned,
    UsageError,
    fresh,
)
from headrace.client.events import Blocked, Event, Lost, Recovered, Unblocked
from headrace.client.link.backpressure import HELD_MAX, HIGH_WATER, Backpressure
from headrace.client.link.link_0_10 import Link010
from headrace.client.link.opening import Opening
from headrace.client.session.session import Session
from headrace.client.stream.stream import Stream
from headrace.client.url import Settings, parse_urls
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9, V0_10

if TYPE_CHECKING:
    from headrace.client.channel.channel_base import ChannelBase
    from headrace.client.link.link_0_x import Link
    from headrace.protocol.codec_0_x import MethodBase
    from headrace.protocol.errors import AmqpError
    from headrace.spec.tables import Version
    from headrace.wire.table import Value

log = logging.getLogger(__name__)

# The client reconnects after these codes of connection.close; others are errors of the program.
TRANSIENT_CLOSE_CODES = (ReplyCode.CONNECTION_FORCED.number, ReplyCode.INTERNAL_ERROR.number)

# Attempts that are repeated when a queue is locked: the broker may not have noticed yet that the
# lost connection, which owns the exclusive queues, is gone.
LOCKED_ATTEMPTS = 4

RECONNECT = Reconnect()


class Connection(AsyncClosing):
    """A connection to a broker. Make one with `connect`."""

    def __init__(
        self,
        settings: Sequence[Settings],
        *,
        reconnect: Reconnect | None,
        ssl_context: ssl.SSLContext | None,
        on_event: Callable[[Event], None] | None,
        backpressure: Backpressure,
    ) -> None:
        # In 0-10 an exclusive queue belongs to one session.
        self.topology = Topology(exclusive=settings[0].version is not V0_10)
        self.backpressure = backpressure
        self._brokers = BrokerList(settings, ssl_context)
        self._reconnect = reconnect
        self._on_event = on_event
        self._link: Link | None = None
        self._channels: dict[int, Channel] = {}
        self._ready_event = asyncio.Event()
        self._error: ClientError | None = None  # The error that closed the connection for good.
        self._recovery: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._error else "open" if self.is_ready else "reconnecting"
        return f"<Connection to {self.address}, {state}>"

    @property
    def address(self) -> str:
        """The URL of the broker it is or was last connected to, without user and password."""
        return self._brokers.current.address

    @property
    def version(self) -> Version:
        """The version of AMQP in use."""
        return self._brokers.current.version

    @property
    def is_ready(self) -> bool:
        """True while connected, with everything restored after the last reconnection."""
        return self._ready_event.is_set() and self._error is None

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed for good."""
        return self._error is not None

    @property
    def blocked(self) -> str | None:
        """The broker's reason not to read publishes (connection.blocked); None while it reads."""
        return self._link.blocked if self._link else None

    @property
    def server_properties(self) -> Mapping[str, Value]:
        """The properties that the broker sent in connection.start."""
        return self._link.server_properties if self._link else {}

    @property
    def frame_max(self) -> int:
        """The negotiated maximum size of a frame in bytes."""
        return self._link.frame_max if self._link else self._brokers.current.frame_max

    @property
    def channel_max(self) -> int:
        """The negotiated maximum number of channels."""
        return self._link.channel_max if self._link else self._brokers.current.channel_max

    @property
    def heartbeat_s(self) -> int:
        """The negotiated interval of heartbeats in seconds; 0 means none."""
        return self._link.heartbeat_s if self._link else self._brokers.current.heartbeat_s

    def channel(
        self,
        *,
        confirm: bool = True,
        unconfirmed_max: int = UNCONFIRMED_MAX,
        retry_lost: bool = False,
        on_return: Callable[[Returned], None] | None = None,
        resume: bytes = b"",
        consumers: Mapping[str, str] | None = None,
    ) -> Opening[Channel]:
        """Open a channel: `await` it, or use it with `async with`.

        With `confirm`, a publish waits for the broker's confirm, and at most `unconfirmed_max`
        messages are unconfirmed at a time. With `confirm=False` publishes do not wait, and
        `on_return` is called with returned messages. With `retry_lost`, messages whose confirms
        were lost with the connection are published again, so the broker may have them twice.

        In 0-9, `resume` is the `channel_id` of a channel whose connection was lost, and `consumers`
        maps its consumer tags to queues; `channel.resumed` has the consumers.
        """
        if resume and self.version is not V0_9:
            raise UsageError(f"AMQP {self.version.label} cannot resume channels")

        async def open_channel() -> Channel:
            link = await self._ready_link()
            channel = Channel(
                self,
                link.free_number(self._channels),
                confirm=confirm,
                unconfirmed_max=unconfirmed_max,
                retry_lost=retry_lost,
                on_return=on_return,
                resume=resume,
                consumers=consumers,
            )
            self._channels[channel.number] = channel
            try:
                await channel.open(link)
            except asyncio.CancelledError:
                channel.give_up(link)
                raise
            except BaseException:
                self.forget(channel)
                raise
            return channel

        return Opening(open_channel)

    def session(
        self, name: str | bytes = "", *, timeout_s: int | None = 0, force: bool = False
    ) -> Opening[Session]:
        """Attach a session of AMQP 0-10: `await` it, or use it with `async with`.

        The broker keeps a detached session for `timeout_s` seconds (None: for good). `force` takes
        the session from the connection it is attached to. Raises UsageError in any other version.
        """

        async def open_session() -> Session:
            session = Session(self, name, timeout_s)
            await session.attach(self, force=force)
            return session

        return Opening(open_session)

    def stream(self, name: str) -> Stream:
        """Return a stream, to be read by offset."""
        return Stream(self, name)

    async def beside(self, version: Version) -> Connection:
        """Open a second connection to the same broker, in another version.

        The connection does not reconnect. Raises ConnectFailed.
        """
        brokers = self._brokers
        settings = [
            replace(broker, version=version) for broker in (brokers.current, *brokers.configured)
        ]
        connection = Connection(
            list(dict.fromkeys(settings)),
            reconnect=None,
            ssl_context=brokers.ssl_context,
            on_event=None,
            backpressure=Backpressure(),
        )
        await connection.open()
        return connection

    async def close(self) -> None:
        """Close the connection. Unconfirmed publishes fail, unacked messages are requeued."""
        if self._error is not None:
            return
        if self._recovery is not None:
            self._recovery.cancel()
        link = self._link
        try:
            if link is not None:
                await link.close()
        finally:
            self._close_for_good(ConnectionClosed(200, "the connection was closed by this program"))

    async def update_secret(self, secret: str, reason: str = "") -> None:
        """Give the broker new credentials before the old expire; reconnecting uses them as well.

        They are sent at once if the broker accepts them: in 0-9-1 every broker with tokens does, in
        the other versions those that announce it. Other brokers close the connection when the old
        credentials expire, and the next connection uses the new ones. Raises ConnectionClosed, with
        530 (320 in 0-10), if the broker refuses them; UsageError if it does not accept them on an
        open connection and reconnection is off.
        """
        link = await self._ready_link()
        if link.renews_secrets or self._reconnect is None:
            await link.update_secret(secret, reason)
        self._brokers.replace_password(secret)

    async def ready(self) -> None:
        """Wait until the connection is ready, or closed for good."""
        await self._ready_event.wait()

    async def session_link(self) -> Link010:
        """Return the link for a session; UsageError when its version is not 0-10."""
        link = await self._ready_link()
        if not isinstance(link, Link010):
            raise UsageError(f"sessions need version=0-10 in the URL of {self.address}")
        return link

    @property
    def channel_numbers(self) -> Container[int]:
        """The numbers of the open channels."""
        return self._channels

    # --- For channels -------------------------------------------------------------------------

    def forget(self, channel: ChannelBase) -> None:
        """Free the number of a channel that is closed."""
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]

    def consumes(self, queue: str) -> bool:
        """Return True if a channel of this connection consumes from the queue."""
        return any(channel.consumes(queue) for channel in self._channels.values())

    # --- For the link -------------------------------------------------------------------------

    def link_method(self, channel: int, method: MethodBase) -> None:
        """Pass a method without content to its channel."""
        owner = self._channels.get(channel)
        if owner is not None:
            owner.method_received(method)

    def link_content(self, channel: int, method: MethodBase, header: bytes, body: bytes) -> None:
        """Pass a method with content to its channel."""
        owner = self._channels.get(channel)
        if owner is not None:
            owner.content_received(method, header, body)

    def link_channel_failed(self, channel: int, error: AmqpError) -> None:
        """Close a channel on which the broker violated the protocol."""
        owner = self._channels.get(channel)
        if owner is not None:
            owner.failed(error)

    def link_blocked(self, link: Link, reason: str | None) -> None:
        """Emit Blocked with the broker's reason, or Unblocked (None)."""
        if link is self._link:  # `_use_link` reports the block of a link that is not in use yet.
            self._emit(Unblocked() if reason is None else Blocked(reason))

    def link_lost(self, link: Link, error: ClientError) -> None:
        """Reconnect after the loss of the link, or close for good."""
        if link is not self._link:
            return
        self._link = None
        self._ready_event.clear()
        self.backpressure.attach(None)
        if self._reconnect is None or _is_final(error):
            self._close_for_good(error)
            return
        if not isinstance(error, ConnectionLost):
            error = ConnectionLost(str(error))
        for channel in list(self._channels.values()):
            channel.lost(error, final=False)
        if self._recovery is None:
            self._emit(Lost(error, final=False))
            self._recovery = asyncio.create_task(self._recover(self._reconnect, error))

    # --- Inside -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect for the first time, to the first of the brokers that accepts."""
        self._use_link(await self._brokers.connect_first(self))
        self._ready_event.set()

    def _use_link(self, link: Link) -> None:
        self._link = link
        self._brokers.use_link(link)
        self.backpressure.attach(link)
        if link.blocked is not None:
            self._emit(Blocked(link.blocked))

    async def _ready_link(self) -> Link:
        while True:
            await self._ready_event.wait()
            if self._error is not None:
                raise fresh(self._error)
            if self._link is not None:
                return self._link

    # Keeps 0-10/s029.
    def _emit(self, event: Event) -> None:
        log.info("%s: %s", self.address, event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:  # An error of the program's callback must not end the connection.
                log.exception("on_event failed on %s", event)

    def _close_for_good(self, error: ClientError) -> None:
        """Close the connection for good."""
        if self._error is not None:
            return
        self._error = error
        self._link = None
        self.backpressure.attach(None)
        for channel in list(self._channels.values()):
            channel.lost(error, final=True)
        self._channels.clear()
        self._ready_event.set()
        if not (isinstance(error, ConnectionClosed) and error.code == 200):
            self._emit(Lost(error, final=True))

    async def _recover(self, reconnect: Reconnect, error: ClientError) -> None:
        """Reconnect until everything is restored, or until retrying cannot help."""
        search = self._brokers.search(self, reconnect)
        attempts = 0
        try:
            while True:
                try:
                    link = await search.next()
                except ConnectFailed as failure:
                    if search.attempts > attempts:
                        error = failure
                    break
                attempts = search.attempts
                self._use_link(link)
                try:
                    renamed = await self._restore(
                        link, topology=reconnect.topology, retry_locked=attempts <= LOCKED_ATTEMPTS
                    )
                except ResourceLocked as failure:
                    log.info("%s", failure)
                    self._link = None
                    await link.close()
                    continue
                except (ConnectionLost, ConnectionClosed) as failure:
                    log.info("%s", failure)
                    error = failure
                    if _is_final(failure):
                        break
                    continue
                if link.is_open:
                    self._ready_event.set()
                    self._emit(Recovered(attempts, renamed))
                    return
            self._close_for_good(error)
        except Exception as failure:
            log.exception("reconnecting failed")
            self._close_for_good(ConnectionLost(f"reconnecting failed: {failure!r}"))
        finally:
            self._recovery = None

    async def _restore(
        self, link: Link, *, topology: bool, retry_locked: bool
    ) -> Mapping[str, str]:
        """Declare the topology again, open the channels and start the consumers.

        Returns the new names of queues that the broker named, by old name. With `retry_locked`,
        raises ResourceLocked when an exclusive queue is locked.
        """
        renamed: dict[str, str] = {}
        if topology:
            declaring_channel: Channel | None = None
            for name, method in self.topology.records():
                if declaring_channel is None:
                    number = link.free_number(self._channels)
                    declaring_channel = Channel(self, number, confirm=False)
                    self._channels[declaring_channel.number] = declaring_channel
                    await declaring_channel.open(link)
                try:
                    new_name = await declaring_channel.redo(link, method)
                except ChannelClosed as error:
                    if retry_locked and isinstance(error, ResourceLocked):
                        raise
                    log.warning("%s could not be restored: %s", method, error)
                    declaring_channel = None
                    continue
                if new_name != name:
                    self.topology.rename(name, new_name)
                    renamed[name] = new_name
            if declaring_channel is not None:
                await declaring_channel.shut(link)
        for channel in list(self._channels.values()):
            try:
                await channel.open(link)
                await channel.resume(link)
            except ChannelClosed as error:
                log.warning("channel %d could not be restored: %s", channel.number, error)
        return renamed


def connect(
    url: str | Sequence[str],
    *,
    reconnect: Reconnect | None = RECONNECT,
    ssl_context: ssl.SSLContext | None = None,
    on_event: Callable[[Event], None] | None = None,
    name: str = "",
    high_water: int = HIGH_WATER,
    held_max: int = HELD_MAX,
) -> Opening[Connection]:
    """Connect to a broker: `await` it, or use it with `async with`.

    `url` may name several brokers, as hosts separated by commas or as a list of URLs. They are
    tried in turn, and the first that accepts the connection is used. `reconnect` is the back-off
    after a lost connection; None does not reconnect. `ssl_context` replaces the default of
    `amqps://`, which verifies certificate and host name. `on_event` is called with Blocked,
    Unblocked, Lost and Recovered. `name` appears in the broker's tools. `high_water` and `held_max`
    bound the bytes of messages received and not yet taken (docs/guides/client.md).

    Raises InvalidUrl at once; then ConnectFailed when no broker accepts the connection, with its
    subclass AuthenticationFailed when the broker refuses the login.
    """
    urls = [url] if isinstance(url, str) else url
    settings = [broker for text in urls for broker in parse_urls(text)]
    if not settings:
        raise UsageError("no URL to connect to")
    if name:
        settings = [replace(broker, name=name) for broker in settings]

    async def open_connection() -> Connection:
        connection = Connection(
            settings,
            reconnect=reconnect,
            ssl_context=ssl_context,
            on_event=on_event,
            backpressure=Backpressure(high_water, held_max),
        )
        await connection.open()
        return connection

    return Opening(open_connection)


def _is_final(error: ClientError) -> bool:
    """Return True if another attempt would end the same way."""
    match error:
        case AuthenticationFailed() | ProtocolViolation() | BufferOverflow():
            return True
        case ConnectionClosed():
            return error.code not in TRANSIENT_CLOSE_CODES
        case _:
            return False
