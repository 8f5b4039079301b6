# SPDX-License-Identifier: Apache-2.0
"""Checks of the connection and channel classes."""

from __future__ import annotations

import contextlib

from headrace.conformance.check import Site, check
from headrace.conformance.peer import BrokenRule, must
from headrace.protocol.codec_0_x import (
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExchangeDeclare,
    QueueDeclare,
    decode_method,
    encode_method,
)
from headrace.protocol.version_negotiation import HEADERS, version_numbers

FRAME_MIN_SIZE = 4096
FRAME_OVERHEAD = 8
PROPERTIES = ("host", "product", "version", "platform", "copyright", "information")


@check("0-9-1/connection.start#01", "0-9/connection.start#protocol-name")
def another_protocol(site: Site) -> None:
    """Another protocol's header gets a supported header or no answer; the connection ends."""
    peer = site.raw()
    peer.send_bytes(b"HTTP\x01\x01\x00\x09")
    answer = b""
    while data := peer.read(1):
        answer += data
    if site.version.label == "0-9-1":
        must(len(answer) == 8 and answer[:4] == b"AMQP", f"a protocol header, not {answer[:20]!r}")
    else:
        must(not answer or answer in HEADERS, f"no method, not {answer[:20]!r}")


@check("0-9-1/connection.start#02", "0-9/connection.start#server-support")
def a_version_to_come(site: Site) -> None:
    """A client of a later version is offered a version that is not later than its own."""
    peer = site.raw()
    client_header = (
        b"AMQP\x00\x09\x00\x00" if site.version.label == "0-9-1" else b"AMQP\x01\x01\x09\x00"
    )
    peer.send_bytes(client_header)
    server_header = peer.read(8)
    must(server_header in HEADERS, f"the header of a version, not {server_header!r}")
    must(
        version_numbers(server_header) <= version_numbers(client_header),
        f"{server_header!r} is later than {client_header!r}",
    )
    must(not peer.read(1), "the end of the stream behind it")


@check(
    "0-9-1/s010",
    "0-9/connection.start.server-properties#required-fields",
)
def who_the_server_is(site: Site) -> None:
    """connection.start has the product, version, platform and copyright of the broker."""
    start = site.raw().greet()
    expected = PROPERTIES if site.version.label != "0-9-1" else PROPERTIES[1:]
    missing = [name for name in expected if not start.server_properties.get(name)]
    must(not missing, f"server-properties lack {', '.join(missing)}")


@check("0-9-1/s011", "0-9/connection.start.locales#required-support")
def the_usual_locale(site: Site) -> None:
    """The broker offers the locale en_US."""
    locales = site.raw().greet().locales
    must(b"en_US" in locales.split(), f"en_US among the locales {locales!r}")


@check("0-9-1/s014", "0-9/connection.start-ok.mechanism#validity")
def an_unknown_mechanism(site: Site) -> None:
    """A mechanism that was not offered ends the connection without another byte."""
    peer = site.raw()
    peer.greet()
    peer.send(ConnectionStartOk(mechanism="NONSENSE", response=b"x", locale="en_US"), 0)
    answer = peer.read(1)
    must(not answer, "the end of the stream, not an answer")


@check(
    "0-9-1/s015",
    "0-9-1/s017",
    "0-9/connection.tune.frame-max#minimum",
    "0-9/connection.tune-ok.frame-max#minimum",
)
def the_smallest_frame(site: Site) -> None:
    """The broker accepts frames of 4,096 bytes before tuning, and this size can be negotiated."""
    peer = site.raw()
    peer.greet()
    settings = site.settings
    start_ok = ConnectionStartOk(
        client_properties={"product": "headrace conformance", "filling": ""},
        mechanism="PLAIN",
        response=f"\0{settings.username}\0{settings.password}".encode(),
        locale="en_US",
    )
    missing = FRAME_MIN_SIZE - FRAME_OVERHEAD - len(encode_method(site.version, start_ok))
    start_ok.client_properties["filling"] = "x" * missing
    peer.send(start_ok, 0)
    tune = peer.expect(ConnectionTune, 0)
    must(not 0 < tune.frame_max < FRAME_MIN_SIZE, f"no frame-max of {tune.frame_max} proposed")
    peer.frame_max = FRAME_MIN_SIZE
    peer.send(ConnectionTuneOk(channel_max=tune.channel_max, frame_max=FRAME_MIN_SIZE), 0)
    peer.call(ConnectionOpen(virtual_host=settings.vhost), ConnectionOpenOk, 0)
    peer.channel(1)
    queue = site.declare_queue_on(peer)
    body = bytes(3 * FRAME_MIN_SIZE)
    peer.publish(queue, body)
    must(peer.get(queue) == body, "a body in frames of the size agreed on")


@check("0-9-1/s016", "0-9/connection.tune-ok.channel-max#upper-limit")
def too_many_channels(site: Site) -> None:
    """A channel-max above the server's ends the connection without a negotiated close."""
    _exceed_limit(site, "channel_max")


@check("0-9-1/s018", "0-9/connection.tune-ok.frame-max#upper-limit")
def too_large_frames(site: Site) -> None:
    """A frame-max above the server's ends the connection without a negotiated close."""
    _exceed_limit(site, "frame_max")


def _exceed_limit(site: Site, limit_name: str) -> None:
    peer = site.raw()
    tune = peer.log_in()
    limit = int(getattr(tune, limit_name))
    if limit == 0 or (limit_name == "channel_max" and limit == 0xFFFF):
        return  # No value exceeds the limit.
    answer = ConnectionTuneOk(channel_max=tune.channel_max, frame_max=tune.frame_max)
    setattr(answer, limit_name, limit + 1)
    peer.send(answer, 0)
    with contextlib.suppress(BrokenRule):
        peer.send(ConnectionOpen(virtual_host=site.settings.vhost), 0)
    frame = peer.frame()  # The broker may send connection.close; it does not wait for close-ok.
    if frame is not None:
        method = decode_method(site.version, frame[2])
        must(isinstance(method, ConnectionClose), f"no {method.NAME}")
        must(peer.frame() is None, "the end of the stream, without waiting for close-ok")


@check("0-9-1/s021", "0-9/connection.open.virtual-host#security")
def a_virtual_host_of_others(site: Site) -> None:
    """A virtual host that does not exist, or that the user may not use, is refused."""
    peer = site.raw()
    tune = peer.log_in()
    peer.send(ConnectionTuneOk(channel_max=tune.channel_max, frame_max=tune.frame_max), 0)
    peer.send(ConnectionOpen(virtual_host="headrace.conformance.none"), 0)
    closed = peer.expect_close(0)
    must(closed.fatal and closed.code in (402, 403, 530), f"a refusal, not {closed}")


@check("0-9-1/connection.close#01", "0-9/connection.close#stability")
def after_a_close(site: Site) -> None:
    """After the broker's connection.close, all methods but close and close-ok are discarded."""
    peer, witness = site.peer(), site.peer()
    queue = site.queue()
    peer.send(ExchangeDeclare(exchange=site.exchange(), type="headrace.conformance.no-type"))
    peer.send(QueueDeclare(queue=queue))
    closed = peer.expect_close()
    if not closed.fatal:
        peer.send(ConnectionCloseOk(), 0)
        must(site.version.label == "0-9-1", f"the connection closed for {closed}")
        return
    witness.expect_refusal(QueueDeclare(queue=queue, passive=True), 404)


@check("0-9-1/channel.close#01", "0-9/channel.close#stability")
def after_a_channel_close(site: Site) -> None:
    """After the broker's channel.close, all methods of the channel but close-ok are discarded."""
    peer = site.peer()
    queue = site.queue()
    peer.send(QueueDeclare(queue=site.queue(), passive=True))
    peer.send(QueueDeclare(queue=queue))
    number, method = peer.next()
    must(isinstance(method, ChannelClose) and number == 1, f"channel.close, not {method}")
    peer.send(QueueDeclare(queue=queue))
    peer.send(ChannelCloseOk())
    peer.call(ChannelOpen(), ChannelOpenOk)
    peer.expect_refusal(QueueDeclare(queue=queue, passive=True), 404)


@check("0-9-1/channel.open#01", "0-9/channel.open#state")
def a_channel_twice(site: Site) -> None:
    """Opening an open channel is a channel error (504)."""
    peer = site.peer()
    peer.send(ChannelOpen())
    closed = peer.expect_close()
    must(closed.code == 504, f"504, not {closed.code} {closed.text}")


@check(
    "0-9-1/channel.flow#01",
    "0-9-1/channel.flow#02",
    "0-9-1/channel.flow#03",
    "0-9/channel.flow#initial-state",
    "0-9/channel.flow#bidirectional",
    "0-9/channel.flow#throttling",
)
def flow_of_a_channel(site: Site) -> None:
    """A channel starts active; a paused channel gets no deliveries until it continues."""
    peer, other = site.peer(), site.peer()
    queue = site.queue()
    other.declare(queue)
    peer.consume(queue, no_ack=True)
    other.publish(queue, b"1")
    must(peer.expect_delivery()[1] == b"1", "a delivery on a channel that was just opened")
    answer = peer.call(ChannelFlow(active=False), ChannelFlowOk)
    must(not answer.active, "flow-ok says that the flow is paused")
    other.publish(queue, b"2")
    must(other.holds(queue, 1), "a paused channel leaves the message in the queue")
    peer.send(ChannelFlow(active=True))
    answers = {
        type(method.method if isinstance(method, tuple) else method)
        for method in (peer.next()[1], peer.next()[1])
    }
    must(answers == {ChannelFlowOk, BasicDeliver}, "the delivery once the channel goes on")
