# SPDX-License-Identifier: Apache-2.0
"""The connection class of 0-8 to 0-9-1: handshake, login, limits, virtual host."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.connection.cluster_port import join_hosts
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.connection import login
from headrace.gateway.v0_x.quirks import client_quirks
from headrace.protocol.codec_0_x import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    MethodBase,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_MIN_SIZE
from headrace.protocol.v0_x.handshake import STATE_CLOSED
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9, V0_9_1

if TYPE_CHECKING:
    from headrace.gateway.connection.cluster_port import ClusterPort
    from headrace.gateway.connection.context import Context
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler

log = logging.getLogger(__name__)

EARLY_CAPABILITIES = ("consumer_cancel_notify",)  # The others need methods of 0-9-1.


# Keeps 0-9-1/s014, 0-9/connection.start-ok.mechanism#validity.
def start_ok(connection: GatewayConnection, channel: Channel, method: ConnectionStartOk) -> None:
    """Record the properties of a client, check its mechanism and begin the login."""
    context = connection.context
    connection.client_properties = method.client_properties
    announced = method.client_properties.get("capabilities")
    capabilities = announced if isinstance(announced, dict) else {}
    if connection.version is V0_9 and early_rules.uses_0_9_1(capabilities):
        connection.version = V0_9_1
        connection.is_early = False
    if connection.is_early:
        capabilities = {name: capabilities.get(name) for name in EARLY_CAPABILITIES}
    connection.capabilities = capabilities
    connection.quirks = client_quirks(method.client_properties)
    connection.speaks_extensions = connection.is_early and connection.quirks.qpid
    connection.publish_receiver.absolute_expirations = connection.quirks.expiration_moment
    mechanism = connection.mechanism = method.mechanism
    if mechanism not in context.offered(connection.number):
        context.record_unknown_mechanism(connection, mechanism)
        if mechanism.encode() in context.mechanisms.split():
            login.refuse(connection)  # Not allowed on this connection, such as PLAIN without TLS.
            return
        log.warning(
            "connection %d: unknown authentication mechanism %.64r", connection.number, mechanism
        )
        connection.state_number = STATE_CLOSED  # Without sending any further data.
        connection.owner.on_closed()
        return
    if method.locale != "en_US" and method.locale:
        log.info(
            "connection %d: the client requests locale %.32r", connection.number, method.locale
        )
    context.authenticate(connection, mechanism, as_bytes(method.response))


def secure_ok(connection: GatewayConnection, channel: Channel, method: ConnectionSecureOk) -> None:
    """Continue the login with the response to a challenge."""
    connection.context.authenticate(connection, connection.mechanism, as_bytes(method.response))


def as_bytes(value: bytes | str) -> bytes:
    """Return a long string as bytes."""
    return value.encode() if isinstance(value, str) else value


# Keeps 0-9-1/s015, 0-9-1/s017, 0-9-1/s016, 0-9-1/s018, 0-9/connection.tune.frame-max#minimum,
# 0-9/connection.tune-ok.frame-max#minimum, 0-9/connection.tune-ok.channel-max#upper-limit,
# 0-9/connection.tune-ok.frame-max#upper-limit.
def tune_ok(connection: GatewayConnection, channel: Channel, method: ConnectionTuneOk) -> None:
    """Refuse limits of a client above those that the broker offered.

    ``ContentReader.frame_limit`` bounds the frames of a client until then.
    """
    context = connection.context
    if method.frame_max and method.frame_max < FRAME_MIN_SIZE:
        raise AmqpError(
            ReplyCode.NOT_ALLOWED,
            f"negotiated frame_max = {method.frame_max} is lower than the minimum allowed value "
            f"({FRAME_MIN_SIZE})",
        )
    if method.frame_max > context.frame_max:
        connection.ignores_input = True  # The close is not negotiated.
        raise AmqpError(
            ReplyCode.NOT_ALLOWED,
            f"negotiated frame_max = {method.frame_max} is higher than the maximum allowed value "
            f"({context.frame_max})",
        )
    if context.channel_max and method.channel_max > context.channel_max:
        connection.ignores_input = True  # The close is not negotiated.
        raise AmqpError(
            ReplyCode.NOT_ALLOWED,
            f"negotiated channel_max = {method.channel_max} is higher than the maximum allowed "
            f"value ({context.channel_max})",
        )
    if connection.transport is not None:
        connection.transport.set_heartbeat(method.heartbeat)


# Keeps 0-9-1/s021, 0-9/connection.open.virtual-host#security,
# 0-9/connection.open.insist#behaviour.
def open_vhost(
    connection: GatewayConnection, channel: Channel, method: ConnectionOpen
) -> MethodBase | None:
    """Open a virtual host.

    A client of 0-8 or 0-9 may be redirected, unless it insists, and is sent the known hosts.
    """
    context = connection.context
    name = method.virtual_host
    user = connection.user
    offers = context.offers
    if connection.is_early and not method.insist and name in offers.redirect:
        host, _, known_hosts = offers.redirect[name].partition(",")
        connection.send_method(0, ConnectionRedirect(host=host, known_hosts=known_hosts))
        connection.owner.on_closed()
        return None
    if context.cluster is not None and is_served_elsewhere(context, name) and user.may_open(name):
        open_elsewhere(connection, channel, method, context.cluster)
        return None
    if name not in context.vhosts or not context.access.vhost_exists(name):
        code = ReplyCode.INVALID_PATH if connection.is_early else ReplyCode.NOT_ALLOWED
        raise AmqpError(code, f"vhost {name} not found")
    if not user.may_open(name):
        raise AmqpError(
            ReplyCode.NOT_ALLOWED, f"access to vhost '{name}' refused for user '{user.name}'"
        )
    context.quotas.admit(connection, context.vhosts[name])
    connection.open_host(context.vhosts[name], context.stores[name], context.pending_confirms(name))
    if connection.transport is not None:
        connection.transport.stop_handshake_timer()
    context.connection_events.report_connection_opened(
        connection, connection.version.label, context.frame_max, context.channel_max
    )
    hosts = join_hosts(context.known_hosts(name)) if connection.is_early else ""
    return ConnectionOpenOk(known_hosts=hosts)


def is_served_elsewhere(context: Context, name: str) -> bool:
    """Return True for a virtual host of the cluster that this broker does not serve now."""
    return not context.serves(name) and context.access.vhost_exists(name)


# Keeps 0-9/connection.open.insist#behaviour.
def open_elsewhere(
    connection: GatewayConnection,
    channel: Channel,
    method: ConnectionOpen,
    cluster: ClusterPort,
) -> None:
    """Open a virtual host that another broker serves, or that no broker serves now."""
    name = method.virtual_host
    broker = cluster.serving(name)
    served = partial(open_when_served, connection, channel, method)
    if broker is None:
        cluster.wait(connection, name, served)
    elif connection.is_early and not method.insist:
        hosts = join_hosts(map(str, cluster.brokers()))
        connection.send_method(0, ConnectionRedirect(host=str(broker), known_hosts=hosts))
        connection.owner.on_closed()
    else:
        cluster.relay(connection, name, served)


def open_when_served(
    connection: GatewayConnection, channel: Channel, method: ConnectionOpen
) -> None:
    """Open the virtual host that the client waited for, which is served now."""
    try:
        answer = open_vhost(connection, channel, method)
    except Exception as error:  # noqa: BLE001 - nothing leaves the machine
        connection.fail(connection.explain(error))
        return
    if answer is not None:
        connection.send_method(0, answer)


def close(connection: GatewayConnection, channel: Channel, method: ConnectionClose) -> None:
    """Do nothing: ``Connection.connection_method`` has answered the client's close."""


def close_ok(connection: GatewayConnection, channel: Channel, method: ConnectionCloseOk) -> None:
    """Do nothing: the client confirms a close; ``V0xContext.log_loss`` logs a missing one."""


def update_secret(
    connection: GatewayConnection, channel: Channel, method: ConnectionUpdateSecret
) -> MethodBase | None:
    """Check the new credentials of a client whose credentials expire."""
    renew = connection.context.renew
    if renew is None or connection.user.expires_s is None:
        return ConnectionUpdateSecretOk()
    renew(connection, as_bytes(method.new_secret))
    return None


HANDLERS: dict[str, Handler] = {
    "connection.start-ok": start_ok,
    "connection.secure-ok": secure_ok,
    "connection.tune-ok": tune_ok,
    "connection.open": open_vhost,
    "connection.close": close,
    "connection.close-ok": close_ok,
    "connection.update-secret": update_secret,
}
