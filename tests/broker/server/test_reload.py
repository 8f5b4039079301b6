# SPDX-License-Identifier: Apache-2.0
"""Settings that are read again: logins, tokens, authorities, the audit log, ports, and the rest.

Connections stay open, except those whose certificate or token is no longer trusted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError, ConnectFailed
from headrace.client.blocking import Connection, connect
from headrace.client.blocking_pipeline import Groups, Requests
from headrace.protocol.codec_0_x import ConnectionSecure, ConnectionStartOk
from headrace.server.config.settings import NEEDS_RESTART, SETTINGS, Setting, load
from headrace.server.login.token_issuers import ISSUERS_MAX
from headrace.testing import LocalBroker
from headrace.testing.ports import reserve
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import json_lines, until
from support.certificates_and_tokens import EVERYTHING, RESOURCE, Certificates, Issuer
from support.command_line import run, works
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    FreePort = Callable[[], int]

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
HERE, THERE = "https://here.example", "https://there.example"


class Desk:
    """A broker, and the settings that it reads."""

    def __init__(self, home: Path, **settings: Any) -> None:
        """A broker with these settings from the beginning; those of `reload` come on top."""
        self.home = home
        self.config = home / "headrace.toml"
        self.always = {"data": str(home / "data"), **settings}
        self.write()
        self.broker = LocalBroker(home / "data", **vars_of(self.config))
        self.restart()
        self.at = ("--data", home / "data")

    def restart(self) -> None:
        self.broker.restart()
        self.always["port"] = self.broker.port
        self.broker._broker.read_settings = lambda: load({}, {}, self.config)

    def write(self, **settings: Any) -> None:
        lines = [
            f"{name} = {json.dumps(value)}\n" for name, value in (self.always | settings).items()
        ]
        self.config.write_text("".join(lines))

    def reload(self, **settings: Any) -> list[str]:
        """Read these settings again; return the lines about what changed."""
        self.write(**settings)
        return works("reload", *self.at).splitlines()

    def refuses(self, **settings: Any) -> str:
        """These settings are refused; return why."""
        self.write(**settings)
        done = run("reload", *self.at)
        assert done.exit_code == 1, done.stdout
        return done.stderr

    @property
    def listens(self) -> dict[str, int]:
        told = json.loads(works("status", *self.at, "--format", "json"))["listens"]
        return {name: int(address.rpartition(":")[2]) for name, address in told.items()}

    def url(self, user: str = "guest", password: str = "guest", **query: str) -> str:
        more = "&".join(f"{name}={value}" for name, value in query.items())
        return f"amqp://{user}:{password}@127.0.0.1:{self.listens['amqp']}/%2F?{more}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("reload"))
    yield desk
    desk.broker.stop()


@pytest.fixture
def desk(shared: Desk) -> Iterator[Desk]:
    """With all settings as they were at first."""
    yield shared
    shared.reload()


def vars_of(config: Path) -> dict[str, Any]:
    """The settings that a file gives, but where it listens and what it keeps."""
    settings = load({}, {}, config)
    names = {field.name for field in dataclasses.fields(settings)} - {"host", "port", "data"}
    return {name: getattr(settings, name) for name in names}


def works_on(connection: Connection) -> bool:
    with connection.channel() as channel:
        channel.declare_queue("", durable=False, exclusive=True)
    return True


@pytest.fixture
def free_port() -> Iterator[FreePort]:
    """Return a port of all addresses that is free, and no other's until the test has ended."""
    with contextlib.ExitStack() as reserved:
        yield lambda: reserved.enter_context(reserve("::")).getsockname()[1]


# --- Logins -------------------------------------------------------------------------------------


def test_ways_to_log_in_are_others_for_those_who_come(desk: Desk) -> None:
    anonymous = desk.url(auth_mechanism="ANONYMOUS")
    plain = desk.url(auth_mechanism="PLAIN")
    with connect(plain, reconnect=None) as before:
        with pytest.raises(ConnectFailed):
            connect(anonymous, reconnect=None)
        desk.reload(anonymous_user="guest", plain_needs_tls=True, plain_on_loopback=False)
        with connect(anonymous, reconnect=None) as connection:
            assert works_on(connection)
        with pytest.raises(ConnectFailed):
            connect(plain, reconnect=None)
        said = desk.refuses(anonymous_user="guest", sasl_mechanisms="PLAIN WHISPER")
        assert "there is no mechanism WHISPER" in said
        with connect(anonymous, reconnect=None):
            desk.reload(sasl_mechanisms="SCRAM-SHA-256")
        with pytest.raises(ConnectFailed):
            connect(plain, reconnect=None)
        with connect(desk.url(auth_mechanism="SCRAM-SHA-256"), reconnect=None):
            pass
        assert works_on(before)


def test_what_a_stranger_is_asked_does_not_change(desk: Desk) -> None:
    """CVE-2016-8741: else a reload, or a restart, would tell which users there are."""

    def salt(name: str) -> bytes:
        with RawClient("127.0.0.1", desk.listens["amqp"]) as raw:
            raw.greet()
            response = f"n,,n={name},r=abc".encode()
            raw.send(
                ConnectionStartOk(mechanism="SCRAM-SHA-256", response=response, locale="en_US")
            )
            challenge = bytes(raw.expect(ConnectionSecure).challenge)
        return challenge.partition(b",s=")[2]

    before = {name: salt(name) for name in ("guest", "nobody")}
    desk.reload(sasl_mechanisms="PLAIN SCRAM-SHA-256")
    assert {name: salt(name) for name in before} == before
    assert before["nobody"] != before["guest"]
    desk.restart()
    assert {name: salt(name) for name in before} == before
    assert (desk.home / "data" / "secret").stat().st_mode & 0o777 == 0o600


# --- Tokens -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def issuers() -> dict[str, Issuer]:
    return {HERE: Issuer("here"), THERE: Issuer("there")}


def tables(desk: Desk, *wanted: str, keys: dict[str, Path], **more: str) -> Path:
    path = desk.home / "issuers.toml"
    lines = []
    for issuer in wanted:
        lines += [f'["{issuer}"]', f'jwks = "{keys[issuer]}"']
        lines += [f'{name} = "{value}"' for name, value in more.items() if issuer == THERE]
    path.write_text("\n".join(lines))
    return path


def bearer(desk: Desk, issuer: Issuer, iss: str, *scopes: str, **more: Any) -> str:
    token = issuer.token(*(scopes or EVERYTHING), iss=iss, **more)
    return desk.url("", token, auth_mechanism="PLAIN")


def test_several_issuers_come_and_go(desk: Desk, issuers: dict[str, Issuer]) -> None:
    """Each with keys, audience and prefix of its own; with one that goes its connections end."""
    keys = {HERE: desk.home / "here.json", THERE: desk.home / "there.json"}
    for name, path in keys.items():
        issuers[name].write(path)
    url = bearer(desk, issuers[HERE], HERE)
    with pytest.raises(ConnectFailed):
        connect(url, reconnect=None)
    both = tables(
        desk, HERE, THERE, keys=keys, resource_server_id="plant", scope_prefix="api:/plant."
    )
    more: dict[str, Any] = {"oauth_resource_server_id": RESOURCE, "oauth_issuers": str(both)}
    desk.reload(**more, audit_log=str(desk.home / "issuers.log"))
    of_there: dict[str, Any] = {
        "aud": "plant",
        "scope": " ".join(f"api:/plant.{scope}" for scope in EVERYTHING),
        "iss": THERE,
    }
    told: dict[str, list[Any]] = {HERE: [], THERE: []}
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(connect(url, reconnect=None, on_event=told[HERE].append))
        theirs = desk.url("", issuers[THERE].token(**of_there))
        there = [
            stack.enter_context(
                connect(f"{theirs}version={each}", reconnect=None, on_event=told[THERE].append)
            )
            for each in VERSIONS
        ]
        assert works_on(here)
        assert works_on(there[2])
        for token in (
            issuers[THERE].token(*EVERYTHING, iss=HERE),  # The key of another issuer,
            issuers[HERE].token(**of_there),
            issuers[THERE].token(*EVERYTHING, iss=THERE),  # the audience of another,
            issuers[HERE].token(*EVERYTHING, iss="https://nowhere.example"),  # and nobody.
            issuers[HERE].token(*EVERYTHING, iss=None),
        ):
            with pytest.raises(ConnectFailed):
                connect(desk.url("", token), reconnect=None)
        with pytest.raises(ClientError, match="530"):  # The same name is another user there.
            there[2].update_secret(issuers[HERE].token(*EVERYTHING, iss=HERE))
        tables(desk, HERE, keys=keys)
        desk.reload(**more, audit_log=str(desk.home / "issuers.log"))
        until(lambda: len(told[THERE]) == len(VERSIONS), "the end of those from there")
        assert works_on(here)
        assert not told[HERE]
    kinds = ["530"] + ["320", "no longer taken"] * 3
    said = " ".join(map(str, told[THERE]))
    assert all(each in said for each in kinds)
    path, what = desk.home / "issuers.log", "credentials.withdrawn"
    until(lambda: len(lines_of(path, what)) >= 3, "the audit log says so")
    assert [(one["who"], one["allowed"]) for one in lines_of(path, what)] == [("tess", False)] * 3


def test_keys_are_read_again_and_what_is_no_set_of_them_changes_nothing(
    desk: Desk, issuers: dict[str, Issuer]
) -> None:
    path = issuers[HERE].write(desk.home / "keys.json")
    settings = {"oauth_jwks": str(path), "oauth_resource_server_id": RESOURCE}
    desk.reload(**settings)
    url = bearer(desk, issuers[HERE], HERE)
    with connect(url, reconnect=None) as first:
        issuers[THERE].write(path)
        with connect(url, reconnect=None):
            pass  # The keys are fresh enough.
        assert not desk.reload(**settings)
        with pytest.raises(ConnectFailed):
            connect(url, reconnect=None)
        good = bearer(desk, issuers[THERE], THERE)
        path.write_text("no keys")
        said = desk.refuses(**settings, heartbeat_s=7)
        assert "setting oauth_jwks: not a JSON Web Key Set" in said
        path.unlink()
        assert "No such file" in desk.refuses(**settings, heartbeat_s=7)
        with connect(good, reconnect=None):
            pass  # With what was read last.
        assert works_on(first)
    issuers[THERE].write(path)
    assert "heartbeat_s" in "".join(desk.reload(**settings, heartbeat_s=7))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rubbish", "Expected"),
        ("", "it names 0 issuers"),
        ("\n".join(f'["https://{n}"]' for n in range(ISSUERS_MAX + 1)), f"{ISSUERS_MAX + 1} issue"),
        ("x" * 300_000, "more than"),
        ("issuer = 3", "'issuer' is not a table"),
        (f'["{THERE}"]', "is the issuer of oauth_issuer"),
        (f'["{HERE}"]\nplace = "x"', "there is no 'place'"),
        (f'["{HERE}"]\nissuer = "x"', "there is no 'issuer'"),
        (f'["{HERE}"]\nleeway_s = 70', "leeway_s: 70 is more than 60"),
        (f'["{HERE}"]\nscope_aliases = "x"', f"(issuer '{HERE}'): 'x' is not alias=scope"),
        (f'["{HERE}"]\nalgorithms = "none"', "tokens must be signed"),
        (f'["{HERE}"]\njwks = "http://x"', "neither a file nor an https address"),
        ('["here"]', "neither a file nor an https address"),
        (None, "No such file"),
    ],
)
def test_a_file_of_issuers_that_cannot_be_used_changes_nothing(
    desk: Desk, text: str | None, said: str
) -> None:
    path = desk.home / "bad.toml"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    refused = desk.refuses(
        oauth_issuers=str(path), oauth_issuer=THERE, oauth_resource_server_id=RESOURCE
    )
    assert said in refused
    assert str(path) in refused or HERE in refused or "here" in refused
    with pytest.raises(ConnectFailed):
        connect(bearer(desk, Issuer(), HERE), reconnect=None)


# --- The audit log ------------------------------------------------------------------------------


def lines_of(path: Path, what: str = "settings.reloaded") -> list[dict[str, Any]]:
    return [line for line in json_lines(path) if line["what"] == what]


def test_the_audit_log_begins_moves_and_ends(desk: Desk) -> None:
    one, two = desk.home / "one.log", desk.home / "two.log"
    said = desk.refuses(audit_log=str(desk.home / "no" / "audit.log"), heartbeat_s=9)
    assert "audit_log" in said
    assert "No such file" in said
    assert "heartbeat_s" not in "".join(desk.reload())
    desk.reload(audit_log=str(one))
    with connect(desk.url(), reconnect=None):
        until(lambda: lines_of(one, "connection.created"), "who comes")
        (began,) = lines_of(one)
        assert began["changed"] == {"audit_log": [None, str(one)]}
        assert began["who"].startswith("system user")
        assert "heartbeat_s" in desk.refuses(audit_log=str(one), heartbeat_s=-1)
        refused = until(lambda: lines_of(one)[1:], "the refusal")[0]
        assert not refused["allowed"]
        assert "-1 is less than 0" in refused["reason"]
        desk.reload(audit_log=str(two), audit_log_keep=3)
        until(lambda: two.exists() and lines_of(two), "it goes on there")
        until(lambda: len(lines_of(one)) == 3, "and says so here")
        assert lines_of(one)[2]["changed"] == lines_of(two)[0]["changed"]
    until(lambda: lines_of(two, "connection.closed"), "who goes")
    desk.reload()
    (_, last) = until(lambda: len(found := lines_of(two)) == 2 and found, "the end")
    assert last["changed"]["audit_log"] == [str(two), None]
    with connect(desk.url(), reconnect=None):
        pass
    assert not lines_of(one, "connection.closed")
    assert len(lines_of(two, "connection.closed")) == 1


# --- Ports --------------------------------------------------------------------------------------


def answers_at(host: str, port: int) -> bool:
    """Return True if a broker speaks AMQP there."""
    with socket.create_connection((host, port), PATIENCE_S) as plain:
        plain.sendall(b"AMQP\x00\x00\x09\x01")
        return plain.recv(7)[:1] == b"\x01"


def test_several_addresses_have_one_port(desk: Desk, free_port: FreePort) -> None:
    port = free_port()
    desk.reload(port=port, host=["127.0.0.1", "::1", "127.0.0.2"])
    assert all(answers_at(host, port) for host in ("127.0.0.1", "::1", "127.0.0.2"))
    assert desk.broker.addresses["amqp"] == f"127.0.0.1:{port}, [::1]:{port}, 127.0.0.2:{port}"
    desk.reload(port=port, host="127.0.0.2")
    assert answers_at("127.0.0.2", port)
    for host in ("127.0.0.1", "::1"):
        with pytest.raises(OSError, match="refused"):
            answers_at(host, port)


@pytest.mark.parametrize("host", ["::", "0.0.0.0,::"])
def test_all_addresses_are_those_of_both_families(
    desk: Desk, free_port: FreePort, host: str
) -> None:
    port = free_port()
    desk.reload(port=port, host=host)
    assert answers_at("127.0.0.1", port)
    assert answers_at("::1", port)
    url = f"amqp://guest:guest@127.0.0.1:{port}/"  # The peer is an address of IPv4, on loopback.
    with connect(url, reconnect=None) as connection:
        assert works_on(connection)
        assert "\t127.0.0.1\t" in works("list", "connections", *desk.at)
    assert "no address" in desk.refuses(host=" , ")


def test_ports_move_under_who_is_connected(desk: Desk, free_port: FreePort, tmp_path: Path) -> None:
    cert, key, _ = (certificates := Certificates(tmp_path)).issue("localhost", "localhost")
    tls = {"tls_cert": str(cert), "tls_key": str(key)}
    trust = ssl.create_default_context(cafile=certificates.ca)

    def speaks(port: int, context: ssl.SSLContext | None) -> bool:
        with contextlib.ExitStack() as stack:
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            if context is not None:
                one = stack.enter_context(context.wrap_socket(one, server_hostname="localhost"))
            one.sendall(b"AMQP\x00\x00\x09\x01")
            return one.recv(7)[:1] == b"\x01"

    first, clear, encrypted = desk.listens["amqp"], free_port(), free_port()
    with connect(desk.url(), reconnect=None) as connection:
        with socket.create_server(("127.0.0.1", 0)) as other:
            busy = other.getsockname()[1]
            for taken in ({"port": clear, "tls_port": busy, **tls}, {"port": busy}):
                assert f"port {busy}: Address already in use" in desk.refuses(**taken)
            assert desk.listens == {"amqp": first}
            assert speaks(first, None)
        assert "tls_port" in "".join(desk.reload(tls_port=encrypted, **tls))
        assert speaks(encrypted, trust)
        assert works_on(connection)
        assert desk.reload(tls_port=clear, **tls)[0].startswith("changed\ttls_port")
        assert speaks(clear, trust)
        with pytest.raises(OSError, match="refused"):
            speaks(encrypted, trust)
        desk.reload(port=encrypted, tls_port=clear, **tls)
        assert speaks(encrypted, None)
        desk.reload(port=clear, tls_port=encrypted, **tls)  # They change places.
        assert speaks(clear, None)
        assert speaks(encrypted, trust)
        desk.reload(host="127.0.0.2", port=clear)
        with pytest.raises(OSError, match="refused"):
            speaks(clear, None)
        assert works_on(connection)
        desk.reload(host="0.0.0.0", port=clear)
        assert speaks(clear, None)
        with socket.create_server(("127.0.0.2", 0)) as other:
            busy = other.getsockname()[1]
            assert "in use" in desk.refuses(host="127.0.0.2", port=busy)
        assert speaks(clear, None)
        assert works_on(connection)


def test_a_port_that_moves_while_the_broker_drains_opens_afterwards(
    desk: Desk, free_port: FreePort
) -> None:
    port = free_port()
    works("drain", *desk.at)
    desk.reload(port=port)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
    assert "draining" in run("health", *desk.at).stdout
    works("resume", *desk.at)
    with connect(desk.url(), reconnect=None) as connection:
        assert works_on(connection)
    assert desk.listens == {"amqp": port}


# --- The rest -----------------------------------------------------------------------------------


def test_the_log_says_what_changed_and_what_cannot(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.reload(product="Rapids", heartbeat_s=7)
    assert "reloaded; changed: heartbeat_s, product" in caplog.messages
    desk.refuses(heartbeat_s=-1)
    assert any(line.startswith("nothing is reloaded: ") for line in caplog.messages)


def test_what_clients_are_told_and_may_hold(desk: Desk) -> None:
    with connect(desk.url(), reconnect=None) as before, before.channel() as channel:
        channel.declare_queue("held", durable=True)
        channel.publish(b"x", "held")
        consumer = channel.consume("held")
        assert next(consumer).body == b"x"
        desk.reload(product="Rapids", ack_timeout_s=0.05, stamp_timestamp="keep")
        again = next(consumer)  # It held the first for too long by now.
        assert again.redelivered
        with connect(desk.url(), reconnect=None) as after, after.channel() as other:
            assert after.server_properties["product"] == "Rapids"
            queue = other.declare_queue("", durable=False, exclusive=True).name
            other.publish(b"y", queue)
            got = until(lambda: other.get(queue), "the message")
            assert "timestamp_in_ms" in (got.headers or {})


def test_virtual_hosts_that_are_made_later_go_by_the_new_settings(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.reload(group_owner_timeout_s=7, staging_size_max="2MiB", disk_free_min="1MiB")
    works("vhost", "add", "later", *desk.at)
    broker = desk.broker._broker
    vhost = until(lambda: broker.vhosts.get("later"), "the virtual host")
    for name in ("/", "later"):
        assert broker.vhosts[name].groups.owner_ms == 7000
        assert broker.storage.stagings[name].size_max == 2 << 20
        assert broker.storage.stores[name].writer.free_min == 1 << 20
    works("vhost", "delete", "later", *desk.at)
    until(lambda: "later" not in broker.vhosts, "its end")
    assert vhost


def test_a_lower_limit_of_pins_applies_to_an_abandoned_group(desk: Desk) -> None:
    arguments: dict[str, Any] = {"x-queue-type": "stream", "x-max-length-bytes": 300_000}
    vhost = desk.broker._broker.vhosts["/"]
    with connect(desk.url()) as connection, connection.channel() as channel:
        channel.declare_queue("pinned", durable=True, arguments=arguments)
        with Requests(connection) as requests:
            Groups(requests, "g").begin({"pinned": "first"}, pin=True)
        channel.publish_many([bytes(1000)] * 1000, "pinned")
        until(lambda: vhost.queues["pinned"].message_count() == 1000, "the messages")
        desk.reload(group_pin_size_max=200_000)
        until(lambda: 0 < vhost.queues["pinned"].message_count() < 700, "their removal")
        channel.delete_queue("pinned")


OTHERS = {  # Values of settings that are neither numbers, nor choices, nor switches.
    "cluster": "postgresql://broker@127.0.0.1/headrace",
    "cluster_address": "127.0.0.1:5672",
    "host": "127.0.0.2",
    "known_hosts": "/=elsewhere:5672",
    "proxy_protocol_from": "192.0.2.0/24",
    "redirect": "/lab=elsewhere:5672",
    "realms": "/data=^x",
    "tunnel_proxies": "proxy=queue",
    "sasl_mechanisms": "PLAIN",
    "oauth_issuer": None,  # Not alone.
    "oauth_verify_audience": None,
    "port": None,
    "tls_port": None,
    "log_file": None,  # Of a process alone.
    "default_queue_type": "quorum",
}
NAMED = ("tls_", "oauth_", "audit_log", "log_")  # Those of files have tests of their own.


def other_value(row: Setting) -> Any:
    """Another value of a setting that can be used alone; None when there is none."""
    if row.name in OTHERS:
        return OTHERS[row.name]
    if row.kind is bool:
        return not row.default
    if row.choices:
        return next(choice for choice in row.choices if choice != row.default)
    if row.kind in (int, float):
        number: Any = row.default if isinstance(row.default, int | float) else 0
        return row.kind(number + 1 if row.high is None or number < row.high else number - 1)
    return None if row.name.startswith(NAMED) else "other"


def test_each_setting_can_be_another_and_be_as_it_was(desk: Desk, free_port: FreePort) -> None:
    """One at a time, and a connection that stays."""
    port = free_port()
    desk.reload(port=port)
    with connect(desk.url(), reconnect=None) as connection:
        for row in SETTINGS:
            value = other_value(row)
            if value is None:
                continue
            lines = desk.reload(**{"port": port, row.name: value})
            kind = "needs a restart" if row.name in NEEDS_RESTART else "changed"
            assert [line.split("\t")[:2] for line in lines] == [[kind, row.name]]
            assert works_on(connection), row.name
            desk.reload(port=port)
        with connect(desk.url(), reconnect=None) as another:
            assert works_on(another)
