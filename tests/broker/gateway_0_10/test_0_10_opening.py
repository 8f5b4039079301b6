# SPDX-License-Identifier: Apache-2.0
"""Opening a connection in 0-10: names, virtual hosts, redirection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headrace.client import AccessRefused, ConnectFailed, NotFound, connect
from headrace.client.blocking import connect as open_blocking
from headrace.client.link.link_0_10 import Link010
from headrace.client.url import parse_url
from headrace.protocol.codec_0_10 import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
)
from support.brokers.broker_process import Served, until
from support.clients.command_client_0_10 import Talk
from support.command_line import on_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.client.blocking import Connection


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("opening")
    data = home / "data"
    for user in ("ada", "bob"):
        on_data(data, "user", "add", user, "--password", user)
    for vhost in ("/", "one", "two", "moved"):
        on_data(data, "vhost", "add", vhost)
    for vhost in ("/", "one", "two", "moved"):
        on_data(data, "permission", "set", "--vhost", vhost, "ada", ".*", ".*", ".*")
    options = ("--redirect", "moved=127.0.0.1:1,127.0.0.1:2", "--known-hosts", "one=b.example:5673")
    broker = Served(home, *options).start()
    yield broker
    broker.end()


def url(served: Served, vhost: str = "%2F", user: str = "ada", more: str = "") -> str:
    return f"amqp://{user}:{user}@127.0.0.1:{served.port}/{vhost}?version=0-10{more}"


def opened(served: Served, vhost: str, user: str = "ada") -> Connection:
    return open_blocking(url(served, vhost, user), reconnect=None)


async def controls(address: str) -> list[Control]:
    """The controls that the broker sends while a connection opens."""
    said: list[Control] = []

    class Noting(Link010):
        def control(self, control: Control) -> None:
            said.append(control)
            super().control(control)

    class Owner:
        def link_lost(self, link: object, error: object) -> None:
            """Ignore errors."""

    link = await Noting.open(parse_url(address), Owner(), None)  # type: ignore[arg-type]  # No more is called.
    await link.close()
    return said


@pytest.mark.rule("0-10/s008", "0-10/s009")
def test_the_server_says_who_it_is_and_speaks_english(served: Served) -> None:
    start = asyncio.run(controls(url(served)))[0]
    assert isinstance(start, ConnectionStart)
    assert start.server_properties is not None
    wanted = {"host", "product", "version", "platform", "copyright", "information"}
    assert wanted <= set(start.server_properties)
    assert all(start.server_properties[key] for key in wanted)
    assert start.locales is not None
    assert "en_US" in start.locales


@pytest.mark.rule("0-10/s022", "0-10/s023")
def test_virtual_hosts_share_nothing(served: Served) -> None:
    with opened(served, "one") as one, opened(served, "two") as two:
        with one.channel() as channel:
            channel.declare_queue("same")
            channel.declare_exchange("only-here")
            channel.publish("in one", "same")
        with two.channel() as channel:
            assert channel.declare_queue("same").message_count == 0
            assert channel.get("same") is None
            with pytest.raises(NotFound):
                channel.publish("x", "same", "only-here")
        with two.session() as session:
            assert session.query_exchange("only-here") is None


@pytest.mark.rule("0-10/s024")
def test_a_virtual_host_without_rights_is_closed(served: Served) -> None:
    with pytest.raises(ConnectFailed, match="access to vhost 'one' refused for user 'bob'"):
        opened(served, "one", "bob")
    with pytest.raises(ConnectFailed, match="vhost nowhere not found") as missing:
        opened(served, "nowhere")
    assert missing.value.code == 402
    with opened(served, "one") as connection, connection.channel() as channel:
        with pytest.raises((AccessRefused, NotFound)):
            channel.declare_queue("missing", passive=True)


@pytest.mark.rule("0-10/s025")
def test_a_client_that_insists_is_not_redirected(served: Served) -> None:
    async def redirected() -> None:
        with pytest.raises(ConnectFailed, match=r"127[.]0[.]0[.]1:2"):
            await connect(url(served, "moved"), reconnect=None)  # No broker listens there.

    asyncio.run(redirected())
    with open_blocking(url(served, "moved", more="&insist=1"), reconnect=None) as connection:
        assert connection.is_ready


def test_open_tells_of_other_hosts(served: Served) -> None:
    for vhost, hosts in (("one", ["b.example:5673"]), ("two", [])):
        answer = asyncio.run(controls(url(served, vhost)))[-2]
        assert isinstance(answer, ConnectionOpenOk)
        assert answer.known_hosts == hosts


@pytest.mark.rule("0-10/s029")
def test_a_connection_lost_without_a_close_is_logged(served: Served) -> None:
    before = served.log().count("lost without a close")
    Talk(served.port, user="ada", password="ada").vanish()
    until(lambda: served.log().count("lost without a close") > before, "the loss is logged")
    before = served.log().count("the connection ended without close-ok")
    client = Talk(served.port, opened=False)
    client.control(ConnectionStart)
    client.send(ConnectionStartOk(mechanism="PLAIN", response=b"\0ada\0ada", locale="en_US"))
    client.control(ConnectionTune)
    client.send(ConnectionTuneOk(channel_max=1))
    client.send(ConnectionOpen(virtual_host="none"))  # The broker closes the connection.
    client.vanish()
    until(
        lambda: served.log().count("the connection ended without close-ok") > before,
        "the missing close-ok is logged",
    )
