# SPDX-License-Identifier: Apache-2.0
"""One connection to a broker in AMQP 0-10.

Its owner uses it like any other link: a
:class:`~headrace.client.link.channel_over_0_10.ChannelBridge` for each channel translates the
methods of 0-9-1 to the commands of a session. Programs that use the commands have a
:class:`~headrace.client.session.session.Session` on the same link.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ProtocolViolation,
    UsageError,
)
from headrace.client.link.channel_over_0_10 import ChannelBridge
from headrace.client.link.link_0_x import Link, clean_hosts, client_properties
from headrace.client.link.login import Login
from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Control,
    Struct,
    decode_command,
)
from headrace.protocol.codec_0_x import BasicAck
from headrace.protocol.errors import AmqpError
from headrace.protocol.errors_0_10 import CloseError, ExecutionError
from headrace.protocol.v0_10.connection.connection import Connection as Machine
from headrace.protocol.v0_x.handshake import Role, State
from headrace.spec.commands import FRAME_SIZE_MAX, FRAME_SIZE_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from headrace.client.channel.outgoing import Publication
    from headrace.client.url import Settings
    from headrace.protocol.codec_0_10 import Command, ExecutionException
    from headrace.protocol.codec_0_x import MethodBase
    from headrace.protocol.v0_10.session.session import Session
    from headrace.protocol.v0_x.channel import DeliveryCollector
    from headrace.wire.types_0_10 import Map

log = logging.getLogger(__name__)

INVALID_PATH = 402


class SessionUser(Protocol):
    """The upcalls of a link to the user of a session: a `ChannelBridge` or a client `Session`."""

    def attached(self) -> None:
        """Handle the attachment of the session: commands can be sent."""

    def detached(self, code: int) -> None:
        """Handle the detachment; `code` is 0 or a session.detach-code."""

    def transferred(self, number: int, command: Any, header: bytes, body: bytes) -> None:
        """Handle a message; complete the command `number` afterwards."""

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """Handle any other command; the link completes it after this call."""

    def result(self, number: int, value: Struct | None) -> None:
        """Handle the result of the command `number`."""

    def completed(self, low: int, high: int) -> None:
        """Handle the completion of the commands from `low` to `high`, both included."""

    def exception(self, error: ExecutionException) -> None:
        """Handle the failure of a command, which ends the session."""

    def resumed(self, kept: bool) -> None:
        """Handle a new attachment; `kept` is True if the broker still had the state."""

    def granted(self, timeout_s: int | None) -> None:
        """Record for how many seconds the broker keeps a detached session; None: for good."""

    def given_up(self, low: int, high: int) -> None:
        """Fail the commands from `low` to `high`, which were lost with an attachment."""

    def lost(self, error: ClientError) -> None:
        """Handle the end of the link."""


class ClientMachine(Machine):
    """The 0-10 machine, with upcalls to its link. Errors of the upcalls end the connection."""

    def __init__(self, link: Link010, settings: Settings) -> None:
        Machine.__init__(
            self,
            Role.CLIENT,
            max_frame_size=min(settings.frame_max, FRAME_SIZE_MAX),
            channel_max=min(settings.channel_max + 1, 65535),
        )
        self.link = link

    def _notify(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except ClientError as error:
            self.link.fail(error)
        except AmqpError as error:
            self.link.report_violation(str(error))

    def _get_user(self, session: Session) -> SessionUser:
        return self.link.session_users[session]

    def on_control(self, number: int, control: Control) -> None:
        self._notify(self.link.control, control)

    # Keeps 0-10/s007.
    def on_rejected(self, header: bytes) -> None:
        text = f"{self.link.settings.address} does not speak AMQP 0-10: {header!r}"
        self.link.fail(ConnectFailed(text))

    def on_failed(self, error: CloseError) -> None:
        self.link.report_violation(str(error))

    def on_attached(self, session: Session) -> None:
        self._notify(self._get_user(session).attached)

    def on_detached(self, session: Session, channel: int, code: int) -> None:
        session_user = self.link.session_users.get(session)
        if session_user is not None:
            self._notify(session_user.detached, code)

    def on_transfer_large(
        self,
        session: Session,
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        _, command = decode_command(bytes(start[:args_end]))
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        session_user = self._get_user(session)
        self._notify(
            session_user.transferred, session.command_id, command, start[header:header_end], body
        )

    def on_command(
        self, session: Session, command: Command, header: bytes, parts: tuple[bytes, ...]
    ) -> None:
        number = session.command_id
        self._notify(self._get_user(session).command, number, command, header, b"".join(parts))
        session.complete(number)

    def on_result(self, session: Session, command_id: int, value: Struct | None) -> None:
        self._notify(self._get_user(session).result, command_id, value)

    def on_exception(self, session: Session, exception: ExecutionException) -> None:
        self._notify(self._get_user(session).exception, exception)

    def on_completed(self, session: Session, lo: int, hi: int) -> None:
        self._notify(self._get_user(session).completed, lo, hi)

    def on_session_control(self, session: Session, control: Control) -> None:
        if control.NAME == "session.timeout":
            self._notify(self._get_user(session).granted, session.timeout_s)

    def on_resumed(self, session: Session, kept: bool) -> None:
        self._notify(self._get_user(session).resumed, kept)

    def on_commands_lost(self, session: Session, lo: int, hi: int) -> None:
        self._notify(self._get_user(session).given_up, lo, hi)

    def on_session_failed(self, session: Session, error: ExecutionError) -> None:
        log.warning("%s broke a rule in a session: %s", self.link.settings.address, error)

    def choose_timeout(self, session: Session, requested: int | None) -> int | None:
        return requested


class Link010(Link):
    """A link in AMQP 0-10. The owner's channels have the numbers of their sessions' channels."""

    machine: ClientMachine

    def _make_machine(self, settings: Settings) -> ClientMachine:
        self.session_users: dict[Session, SessionUser] = {}
        self.bridges: dict[int, ChannelBridge] = {}
        return ClientMachine(self, settings)

    # --- For the owner ------------------------------------------------------------------------

    @property
    def frame_max(self) -> int:
        return self.machine.max_frame_size

    @property
    def channel_max(self) -> int:
        """Return the highest channel number; channel 0 is not used."""
        return self.machine.channel_max - 1

    def free_number(self, used_numbers: Container[int]) -> int:
        for number in range(1, self.machine.channel_max):
            if number not in used_numbers and number not in self.machine.attached:
                return number
        raise UsageError(f"all {self.channel_max} channels of the connection are in use")

    def _send_secret(self, secret: bytes, reason: str) -> None:
        self._check()
        self.machine.send_control(ConnectionUpdateSecret(new_secret=secret, reason=reason))
        self.schedule_flush()

    def send(self, channel: int, method: MethodBase) -> None:
        self._check()
        bridge = self.bridges.get(channel)
        if bridge is None:
            bridge = ChannelBridge(self, channel, self._owner)
            self.bridges[channel] = bridge
        bridge.request(method)
        self.schedule_flush()

    def send_content(self, channel: int, method: MethodBase, header: bytes, body: bytes) -> None:
        self._check()
        self.bridges[channel].publishes.send(method, header, body)
        self.schedule_flush()

    def send_publication(self, channel: int, publication: Publication) -> None:
        self.send_content(channel, publication.method, publication.header, publication.body)

    def send_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        self.send(channel, BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def flush(self) -> None:
        """Write the queued output, with the accumulated acks and completions of the sessions."""
        for bridge in self.bridges.values():
            bridge.send_accepts()
        if self.machine.state is State.OPEN:
            self.machine.announce()
        super().flush()

    # --- For sessions -------------------------------------------------------------------------

    def attach(
        self, session: Session, session_user: SessionUser, number: int, *, force: bool = False
    ) -> None:
        """Attach a session to a channel."""
        self._check()
        self.session_users[session] = session_user
        try:
            self.machine.attach(session, number, force)
        except CloseError as error:
            del self.session_users[session]
            raise UsageError(str(error)) from error
        self.schedule_flush()

    def start_gathering(
        self, channel: int, collector: DeliveryCollector, after_read: Callable[[], None]
    ) -> None:
        """Do nothing: in 0-10 the bridge passes each transfer to the sink."""

    def forget(self, session: Session) -> None:
        """Remove a session."""
        self.session_users.pop(session, None)

    def forget_bridge(self, number: int) -> None:
        """Remove the bridge of a closed channel."""
        self.bridges.pop(number, None)

    def report_violation(self, text: str) -> None:
        """End the link: the broker violated the protocol."""
        self.fail(ProtocolViolation(f"{self.settings.address} broke the protocol: {text}"))

    def schedule_flush(self) -> None:
        """Write the queued output in this turn of the loop."""
        self._schedule_flush()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop."""
        self._loop.call_soon(callback)

    # --- The opening --------------------------------------------------------------------------

    def control(self, control: Control) -> None:
        """Handle a control of the connection class."""
        match control:
            case ConnectionStart():
                self._start_0_10(control)
            case ConnectionSecure():
                answer = self._secure(control.challenge or b"")
                self.machine.send_control(ConnectionSecureOk(response=answer))
            case ConnectionTune():
                self._tune_0_10(control)
            case ConnectionOpenOk():
                self.known_hosts = clean_hosts(control.known_hosts or ())
                self._received_at = self._loop.time()
                if not self._opened.done():
                    self._opened.set_result(None)
                if self.heartbeat_s:
                    self._check_heartbeat()
            case ConnectionUpdateSecretOk():
                self._secret_updated()
            case ConnectionRedirect():
                self.redirect([control.host or "", *(control.known_hosts or ())])
            case ConnectionClose():
                self.fail(ConnectionClosed(control.reply_code or 0, control.reply_text or ""))
            case ConnectionCloseOk():
                self._hang_up()

    def _start_0_10(self, start: ConnectionStart) -> None:
        self.server_properties = dict(start.server_properties or {})  # type: ignore[arg-type]  # More types.
        offered_mechanisms = [str(mechanism) for mechanism in start.mechanisms or ()]
        self.login = Login(self.settings, offered_mechanisms)
        locales = start.locales or ["en_US"]
        properties: Map = {**client_properties()}
        if self.settings.name:
            properties["connection_name"] = self.settings.name
        self.machine.send_control(
            ConnectionStartOk(
                client_properties=properties,
                mechanism=self.login.mechanism,
                response=self.login.response,
                locale="en_US" if "en_US" in locales else locales[0],
            )
        )

    def _tune_0_10(self, tune: ConnectionTune) -> None:
        """Choose limits within the broker's offer."""
        if self.login is not None:
            self.login.check_server_proof()
        settings = self.settings
        offered_channel_max = tune.channel_max
        size = min(settings.frame_max, FRAME_SIZE_MAX)
        if tune.max_frame_size is not None:
            if tune.max_frame_size < FRAME_SIZE_MIN:
                raise ProtocolViolation(
                    f"the broker's frames of {tune.max_frame_size} bytes are below {FRAME_SIZE_MIN}"
                )
            size = min(size, tune.max_frame_size)
        channels = min(settings.channel_max + 1, 65535)
        self.machine.send_control(
            ConnectionTuneOk(
                channel_max=channels
                if offered_channel_max is None
                else min(channels, offered_channel_max),
                max_frame_size=size,
                heartbeat=choose_heartbeat(settings.heartbeat_s, tune),
            )
        )
        self.machine.send_control(
            ConnectionOpen(virtual_host=settings.vhost, capabilities=[], insist=settings.insist)
        )

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle input from the broker."""
        self._received_at = self._loop.time()
        self.machine.receive(data)
        if self.machine.pending():
            self.flush()

    def _send_close(self) -> None:
        self.machine.send_control(ConnectionClose(reply_code=200, reply_text="Goodbye"))

    def _report(self) -> None:
        assert self._error is not None
        error = self._error
        if not isinstance(error, ConnectionLost | ConnectionClosed):
            error = ConnectionLost(str(error))
        # Removed first, so that the users get `lost` and no `detached`.
        session_users, self.session_users = self.session_users, {}
        self.bridges.clear()
        self.machine.detach_all()
        for session_user in session_users.values():
            session_user.lost(error)
        super()._report()


def choose_heartbeat(requested_s: int, tune: ConnectionTune) -> int | None:
    """Return the offered interval nearest to the requested one, in seconds; None for none."""
    if tune.heartbeat_min is None or not requested_s:
        return None
    chosen_s = max(requested_s, tune.heartbeat_min)
    if tune.heartbeat_max is not None:
        chosen_s = min(chosen_s, tune.heartbeat_max)
    return chosen_s or None
