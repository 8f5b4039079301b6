# SPDX-License-Identifier: Apache-2.0
"""The URL of a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.client import InvalidUrl, Settings, parse_url, parse_urls


def test_everything_has_a_default() -> None:
    assert parse_url("amqp://") == Settings()
    settings = parse_url("amqp://localhost")
    assert (settings.host, settings.port, settings.tls) == ("localhost", 5672, False)
    assert (settings.username, settings.password, settings.vhost) == ("guest", "guest", "/")
    assert parse_url("amqps://h").port == 5671


def test_every_part_is_read() -> None:
    settings = parse_url(
        "amqps://us%40er:p%2Fw%3A@example.org:1234/my%2Fvhost?heartbeat=30&frame_max=8192"
        "&channel_max=5&connection_attempts=3&retry_delay=0.5&connection_timeout=7&name=me"
        "&auth_mechanism=amqplain&cacertfile=ca.pem&certfile=c.pem&keyfile=k.pem"
        "&server_name_indication=other"
    )
    assert settings == Settings(
        host="example.org",
        port=1234,
        tls=True,
        username="us@er",
        password=settings.password,
        vhost="my/vhost",
        heartbeat_s=30,
        frame_max=8192,
        channel_max=5,
        connection_attempts=3,
        retry_delay_s=0.5,
        connection_timeout_s=7.0,
        name="me",
        mechanism="AMQPLAIN",
        cacertfile="ca.pem",
        certfile="c.pem",
        keyfile="k.pem",
        server_name="other",
    )
    assert settings.password == "p/w:"


@pytest.mark.parametrize(
    ("path", "vhost"),
    [("", "/"), ("/", "/"), ("/%2F", "/"), ("//", "/"), ("/a", "a"), ("/%C3%BC", "ü")],
)
def test_virtual_host(path: str, vhost: str) -> None:
    assert parse_url(f"amqp://h{path}").vhost == vhost


def test_ipv6() -> None:
    settings = parse_url("amqp://[::1]:5673")
    assert (settings.host, settings.port) == ("::1", 5673)
    assert settings.address == "amqp://[::1]:5673//"


def test_password_is_not_shown() -> None:
    settings = parse_url("amqp://alice:s3cret@h/v")
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in settings.address


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "h:5672",
        "",
        "amqp://h:port",
        "amqp://h:99999",
        "amqp://h:0",
        "amqp://u:p%zz@h",
        "amqp://u:p%ff@h",
        "amqp://h/v#fragment",
        "amqp://h?heartbeat=soon",
        "amqp://h?heartbeat=-1",
        "amqp://h?heartbeat=65536",
        "amqp://h?heartbeat=٣",
        "amqp://h?frame_max=4095",
        "amqp://h?channel_max=0",
        "amqp://h?connection_attempts=0",
        "amqp://h?retry_delay=-1",
        "amqp://h?retry_delay=nan",
        "amqp://h?hearbeat=3",
        "amqp://h?heartbeat=1&heartbeat=2",
        "amqp://h?heartbeat",
        "amqp://h?auth_mechanism=kerberos",
        "amqp://h?cacertfile=x",
        "amqps://h?keyfile=x",
        "amqp://[::1",
        f"amqp://h/{'v' * 256}",
    ],
)
def test_mistakes_are_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(url)


@pytest.mark.parametrize("url", ["amqp://u:se/cret@h", "amqp://u:sec#ret@h", "amqp://u:s[ecret@h"])
def test_an_unescaped_password_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        parse_url(url)
    assert "ret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("amqp://u:p@h1:5673,h2/v", [("h1", 5673), ("h2", 5672)]),
        ("amqps://h1,h2:1", [("h1", 5671), ("h2", 1)]),
        ("amqp://[::1]:1,h2,[::2]:2?heartbeat=5", [("::1", 1), ("h2", 5672), ("::2", 2)]),
        ("amqp://u:a,b@h", [("h", 5672)]),
        ("amqp://h/a,b?name=c,d", [("h", 5672)]),
    ],
)
def test_commas_separate_hosts(url: str, places: list[tuple[str, int]]) -> None:
    settings = parse_urls(url)
    assert [(one.host, one.port) for one in settings] == places
    others = {replace(one, host="", port=0) for one in settings}
    assert len(others) == 1


@pytest.mark.parametrize(
    "url",
    ["amqp://h1,/", "amqp://,h2", "amqp://u:p@h1,,h2", "amqp://h1:x,h2", "amqp://" + "h," * 40],
)
def test_mistakes_in_lists_of_hosts_are_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_urls(url)


def test_a_single_broker_is_asked_for() -> None:
    with pytest.raises(InvalidUrl, match="several brokers"):
        parse_url("amqp://h1,h2")
