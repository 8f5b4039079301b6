# SPDX-License-Identifier: Apache-2.0
"""How the client opens a connection in 0-10, and what it does not put up with."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace.client import AuthenticationFailed, ConnectFailed, ConnectionLost, connect
from headrace.client.link.link_0_10 import choose_heartbeat
from headrace.client.link.login import Login
from headrace.client.url import Settings
from headrace.protocol.codec_0_10 import ConnectionClose, ConnectionRedirect, ConnectionTune
from headrace.spec.tables import V0_9_1, V0_10
from support.brokers.scripted_broker_0_10 import HungUp, Peer, scripted


async def serve_until_closed(peer: Peer) -> None:
    """Accept the client, and answer until it closes the connection."""
    await peer.handshake()
    await peer.control(ConnectionClose)


@pytest.mark.rule("0-10/s010")
async def test_the_client_says_who_it_is() -> None:
    said = []

    async def script(peer: Peer) -> None:
        said.append((await peer.handshake())[0])
        await peer.control(ConnectionClose)

    async with scripted(script) as url, connect(url, name="me", reconnect=None) as connection:
        assert connection.version is V0_10
        assert connection.server_properties["product"] == "scripted"
    properties = said[0].client_properties
    assert {"product", "version", "platform", "information"} <= set(properties)  # type: ignore[arg-type]
    assert properties["connection_name"] == "me"
    assert said[0].response == b"\0guest\0guest"
    assert said[0].locale == "en_US"


@pytest.mark.rule("0-10/s007")
async def test_another_version_ends_the_connection() -> None:
    ends = []

    async def script(peer: Peer) -> None:
        await peer.reader.readexactly(8)
        peer.writer.write(V0_9_1.header)
        await peer.writer.drain()
        ends.append(await peer.reader.read())  # Only the end of the stream.

    async with scripted(script) as url:
        with pytest.raises(ConnectFailed, match="does not speak AMQP 0-10"):
            await connect(url, reconnect=None)
        await asyncio.sleep(0)
        while not ends:
            await asyncio.sleep(0.01)
    assert ends == [b""]


@pytest.mark.rule("0-10/s011")
def test_the_strongest_mechanism_is_taken() -> None:
    offered = ["ANONYMOUS", "PLAIN", "EXTERNAL", "DIGEST-MD5"]
    assert Login(Settings(), offered).mechanism == "PLAIN"
    certified = Settings(tls=True, certfile="cert.pem")
    assert Login(certified, offered).mechanism == "EXTERNAL"
    assert Login(certified, ["PLAIN"]).mechanism == "PLAIN"
    anonymous = Login(Settings(mechanism="ANONYMOUS"), offered)
    assert (anonymous.mechanism, anonymous.response) == ("ANONYMOUS", b"")
    with pytest.raises(AuthenticationFailed, match="ANONYMOUS"):
        Login(Settings(), ["ANONYMOUS"])


@pytest.mark.rule("0-10/s020")
def test_the_heartbeat_is_within_what_is_offered() -> None:
    for least, most, wanted, chosen in (
        (10, 20, 5, 10),
        (10, 20, 15, 15),
        (10, 20, 60, 20),
        (10, None, 60, 60),
        (0, 120, 60, 60),
        (0, 120, 0, None),
    ):
        offer = ConnectionTune(heartbeat_min=least, heartbeat_max=most)
        assert choose_heartbeat(wanted, offer) == chosen


@pytest.mark.rule("0-10/s021")
async def test_no_heartbeat_where_none_is_offered() -> None:
    chosen = []

    async def script(peer: Peer) -> None:
        tune = ConnectionTune(channel_max=10, max_frame_size=5000)
        chosen.append((await peer.handshake(tune=tune))[1])
        await peer.control(ConnectionClose)

    async with scripted(script) as url, connect(url, reconnect=None) as connection:
        assert connection.heartbeat_s == 0
        assert connection.frame_max == 5000
        assert connection.channel_max == 9
    assert chosen[0].heartbeat is None
    assert chosen[0].max_frame_size == 5000
    assert chosen[0].channel_max == 10


@pytest.mark.rule("0-10/s013", "0-10/s016")
async def test_frames_of_4096_octets_are_taken_before_the_tuning() -> None:
    async def script(peer: Peer) -> None:
        from headrace.protocol.codec_0_10 import ConnectionStart, encode_control

        await peer.reader.readexactly(8)
        start = ConnectionStart(
            server_properties={"filler": b""}, mechanisms=["PLAIN"], locales=["en_US"]
        )
        room = 4096 - 12 - len(encode_control(start))
        start.server_properties = {"filler": b"x" * room}
        payload = encode_control(start)
        frame = b"\x0f\0" + (len(payload) + 12).to_bytes(2, "big") + bytes(8) + payload
        assert len(frame) == 4096
        peer.writer.write(V0_10.header + frame)
        answer = await peer.reader.readexactly(12)
        assert answer[:2] == b"\x0f\0"  # start-ok.

    async with scripted(script) as url:
        with pytest.raises(ConnectFailed, match="lost"):
            await connect(url, reconnect=None)


@pytest.mark.rule("0-10/s013", "0-10/s016")
async def test_frames_below_4096_octets_are_not_agreed_on() -> None:
    async def script(peer: Peer) -> None:
        with pytest.raises(HungUp):
            await peer.handshake(tune=ConnectionTune(channel_max=10, max_frame_size=4095))

    async with scripted(script) as url:
        with pytest.raises(ConnectFailed, match="4095"):
            await connect(url, reconnect=None)


@pytest.mark.rule("0-10/s026")
async def test_a_redirection_is_followed_to_the_first_that_answers() -> None:
    reached = []

    async def there(peer: Peer) -> None:
        reached.append((await peer.handshake())[2])
        await peer.control(ConnectionClose)

    async with scripted(there) as second:
        port = second.split(":")[3].split("/")[0]

        async def here(peer: Peer) -> None:
            hosts = ConnectionRedirect(host="127.0.0.1:1", known_hosts=[f"127.0.0.1:{port}"])
            await peer.handshake(answer=hosts)

        async with scripted(here) as first, connect(first, reconnect=None) as connection:
            assert f":{port}/" in connection.address
    assert not reached[0].insist


async def test_brokers_that_send_us_in_a_circle() -> None:
    urls = []

    async def script(peer: Peer) -> None:
        port = urls[0].split(":")[3].split("/")[0]
        await peer.handshake(answer=ConnectionRedirect(host=f"127.0.0.1:{port}"))

    async with scripted(*[script] * 6) as url:
        urls.append(url)
        with pytest.raises(ConnectFailed, match="more than 5 redirections"):
            await connect(url, reconnect=None)


async def test_a_client_may_insist() -> None:
    said = []

    async def script(peer: Peer) -> None:
        said.append((await peer.handshake())[2])
        await peer.control(ConnectionClose)

    async with scripted(script) as url, connect(url + "&insist=1", reconnect=None):
        pass
    assert said[0].insist


@pytest.mark.rule("0-10/s029")
async def test_a_connection_that_ends_without_a_word_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = []
    lost = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()

    def note(event: object) -> None:
        events.append(event)
        lost.set()

    with caplog.at_level(logging.INFO, "headrace.client"):
        async with scripted(script) as url, connect(url, reconnect=None, on_event=note):
            await lost.wait()
    assert isinstance(events[0].error, ConnectionLost)  # type: ignore[attr-defined]
    assert "was lost" in caplog.text


@pytest.mark.rule("0-10/s027")
async def test_a_silent_broker_is_given_up_after_two_heartbeats() -> None:
    lost = asyncio.Event()

    async def script(peer: Peer) -> None:
        tune = ConnectionTune(
            channel_max=10, max_frame_size=65535, heartbeat_min=0, heartbeat_max=1
        )
        await peer.handshake(tune=tune)
        while await peer.reader.read(4096):  # The client's heartbeats.
            peer.heartbeats += 1
        assert peer.heartbeats

    async with scripted(script) as url:
        async with connect(url, reconnect=None, on_event=lambda _: lost.set()):
            await lost.wait()
