# SPDX-License-Identifier: Apache-2.0
"""SASL mechanisms: SCRAM by its standards, names in certificates, who is offered what, plug-ins."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.metadata
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.gateway.sasl import scram as mechanism
from headrace.gateway.sasl.external import certificate_name
from headrace.gateway.sasl.logins import Logins
from headrace.gateway.sasl.mechanism import MechanismServices, Steps
from headrace.gateway.sasl.mechanisms import DEFAULT, MechanismError, load
from headrace.gateway.security.access import Access
from headrace.gateway.security.passwords import make_account
from headrace.gateway.security.remote_peer import Certificate, LoginRefused, RemotePeer
from headrace.gateway.security.throttle import Throttle
from headrace.gateway.security.user import User
from headrace.model.policy.accounts import Account
from headrace.protocol import scram
from headrace.store.catalog.users import UserDirectory

SUBJECT = ((("organizationName", "Example, Inc"),), (("commonName", "ada"),))
CERTIFICATE: Certificate = {
    "subject": SUBJECT,
    "subjectAltName": (("DNS", "ada.example"), ("email", "ada@example"), ("DNS", "two")),
}


@pytest.fixture(scope="module")
def account() -> Account:
    return make_account("ada", "sécret")


@pytest.fixture
def access(account: Account) -> Iterator[Access]:
    with contextlib.closing(UserDirectory()) as directory:
        directory.add_user(account)
        directory.add_user(Account("old", account.password_hash))
        yield Access(directory, throttle=Throttle(delay_s=0.0))


def talk(access: Access, client: scram.Client) -> User:
    """A whole login by SCRAM-SHA-256."""

    async def steps() -> User:
        logins = Logins(load("SCRAM-SHA-256", MechanismServices(access)))
        response = client.first
        for _ in range(4):
            found = await logins.step(1, RemotePeer(), "SCRAM-SHA-256", response)
            if isinstance(found, User):
                return found
            response = client.answer(found)
        raise AssertionError("too many steps")

    return asyncio.run(steps())


def test_scram_does_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    nonces = iter(["rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"])
    monkeypatch.setattr(scram, "nonce", lambda: next(nonces))
    client = scram.Client("user", "pencil")
    assert client.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored, server_key = scram.keys(scram.salt_password("pencil", salt, 4096))
    server = scram.Server(
        scram.read_client_first(client.first),
        salt=salt,
        iterations=4096,
        stored_key=stored,
        server_key=server_key,
    )
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server.challenge == nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.answer(server.challenge)
    assert final == b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    proof = server.finish(final)
    assert proof == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.answer(proof) == b""
    assert client.done


def test_scram_accepts_the_password_only(access: Access) -> None:
    assert talk(access, scram.Client("ada", "sécret")).name == "ada"
    assert talk(access, scram.Client("ada", "se\u0301cret")).name == "ada"  # SASLprep: the same.
    for name, password, why in [  # For the log alone.
        ("ada", "secret", "the proof is wrong"),
        ("nobody", "sécret", "there is no user 'nobody'"),
        ("old", "sécret", "the password of user 'old' must be set again"),
    ]:
        with pytest.raises(LoginRefused, match=why):
            talk(access, scram.Client(name, password))


def test_scram_answers_for_users_that_are_not_there_as_for_others(access: Access) -> None:
    """CVE-2016-8741: salts and iterations do not reveal accounts."""
    made = mechanism.Scram(MechanismServices(access))

    async def challenge(name: str) -> dict[str, str]:
        octets = await made.begin(RemotePeer()).step(b"n,,n=" + name.encode() + b",r=abc")
        assert isinstance(octets, bytes)
        return scram.attributes(octets, "rsi")

    def asked(name: str) -> tuple[str, str]:
        found = asyncio.run(challenge(name))
        return found["s"], found["i"]

    known, unknown, old = asked("ada"), asked("nobody"), asked("old")
    assert known == asked("ada")
    assert unknown == asked("nobody")
    assert old == asked("old")
    assert len({known, unknown, old, asked("another")}) == 4
    assert {len(each[0]) for each in (known, unknown, old)} == {24}
    assert {each[1] for each in (known, unknown, old)} == {str(scram.ITERATIONS)}


@pytest.mark.parametrize(
    "response",
    [
        b"x",
        b"n,,",
        b"n,,n=ada",
        b"n,,r=abc,n=ada",
        b"n,,n=ada,r=",
        b"n,,n=a=da,r=abc",
        b"n,,n=ada,r=" + b"x" * 300,
        b"n,,n=ada,n=ada,r=abc",
        b"n,a=bob,n=ada,r=abc",
        b"n,,m=x,n=ada,r=abc",
        b"p=tls-unique,,n=ada,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=" + b"a" * 2000 + b",r=abc",
        b"n,,n=\xc2\xad,r=abc",  # Prepared, it is empty.
        b"y" * 12000,
    ],
)
def test_malformed_first_messages_of_scram_are_refused(access: Access, response: bytes) -> None:
    with pytest.raises(LoginRefused):
        asyncio.run(mechanism.Scram(MechanismServices(access)).begin(RemotePeer()).step(response))


def test_a_proof_is_good_for_its_own_challenge_only(access: Access) -> None:
    async def steal() -> None:
        made = mechanism.Scram(MechanismServices(access))
        client = scram.Client("ada", "sécret")
        one, other = made.begin(RemotePeer()), made.begin(RemotePeer())
        challenge = await one.step(client.first)
        await other.step(client.first)
        assert isinstance(challenge, bytes)
        proof = client.answer(challenge)
        with pytest.raises(LoginRefused, match="does not follow"):
            await other.step(proof)

    asyncio.run(steal())


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=x,s=AAAA,i=4096",
        b"r={nonce},s=AAAA,i=4096",
        b"r={nonce}x,s=AAAA,i=4095",
        b"r={nonce}x,s=AAAA,i=99999999",
        b"r={nonce}x,s=!,i=4096",
        b"r={nonce}x,s=,i=4096",
        b"v=AAAA",
        b"e=other-error",
    ],
)
def test_our_side_of_scram_refuses_a_bad_challenge(challenge: bytes) -> None:
    client = scram.Client("ada", "secret")
    nonce = client.first.partition(b"r=")[2]
    with pytest.raises(scram.ScramError):
        client.answer(challenge.replace(b"{nonce}", nonce))
    assert not client.done


def test_our_side_of_scram_wants_the_servers_proof() -> None:
    client = scram.Client("ada", "secret")
    nonce = client.first.partition(b"r=")[2]
    client.answer(b"r=" + nonce + b"x,s=AAAA,i=4096")
    with pytest.raises(scram.ScramError):
        client.answer(b"v=" + base64.b64encode(b"x" * 32))
    assert not client.done


@pytest.mark.parametrize(
    ("where", "san", "name"),
    [
        ("common_name", "dns", "ada"),
        ("distinguished_name", "dns", "CN=ada,O=Example\\, Inc"),
        ("subject_alternative_name", "email", "ada@example"),
    ],
)
def test_a_certificate_names_its_user(where: str, san: str, name: str) -> None:
    assert certificate_name(CERTIFICATE, where, san) == name


@pytest.mark.parametrize(
    ("certificate", "where", "san"),
    [
        (CERTIFICATE, "subject_alternative_name", "dns"),  # Two.
        (CERTIFICATE, "subject_alternative_name", "uri"),
        ({}, "common_name", "dns"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, "common_name", "dns"),
        ({"subject": ((("commonName", "root\0.evil"),),)}, "common_name", "dns"),
        ({"subject": ((("commonName", "a" * 300),),)}, "common_name", "dns"),
        ({"subject": ((("commonName", ""),),)}, "common_name", "dns"),
    ],
)
def test_a_certificate_without_one_plain_name_names_no_user(
    certificate: Certificate, where: str, san: str
) -> None:
    with pytest.raises(LoginRefused):
        certificate_name(certificate, where, san)


def test_a_subject_cannot_pass_for_another() -> None:
    forged: Certificate = {"subject": ((("commonName", "ada,O=Example"),),)}
    assert certificate_name(forged, "distinguished_name") == "CN=ada\\,O\\=Example"


def test_mechanisms_are_offered_where_they_can_be_used(access: Access) -> None:
    plain = ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"]
    logins = Logins(load(DEFAULT, MechanismServices(access)))
    assert logins.offered(RemotePeer()) == plain
    tls = RemotePeer(loopback=False, encrypted=True, certificate=CERTIFICATE)
    assert logins.offered(tls) == [*plain, "EXTERNAL"]
    assert logins.offered(RemotePeer(certificate=CERTIFICATE)) == plain  # That is no TLS.
    strict = Logins(load(DEFAULT, MechanismServices(access)), plain_needs_tls=True)
    assert strict.offered(RemotePeer(loopback=False)) == ["SCRAM-SHA-256"]
    assert strict.offered(RemotePeer()) == plain
    assert strict.offered(tls) == [*plain, "EXTERNAL"]
    strictest = Logins(
        load(DEFAULT, MechanismServices(access)), plain_needs_tls=True, plain_on_loopback=False
    )
    assert strictest.offered(RemotePeer()) == ["SCRAM-SHA-256"]


@pytest.mark.parametrize("name", ["EXTERNAL", "ANONYMOUS", "XOAUTH2", "OAUTHBEARER", "X", ""])
def test_what_is_not_offered_is_refused(access: Access, name: str) -> None:
    """CVE-2015-0223: what is off cannot be used by asking for it."""
    logins = Logins(load(DEFAULT, MechanismServices(access)))
    with pytest.raises(LoginRefused, match="not offered"):
        asyncio.run(logins.step(1, RemotePeer(), name, b"ada"))


def test_external_does_not_act_as_another(access: Access) -> None:
    logins = Logins(load("EXTERNAL", MechanismServices(access)))
    peer = RemotePeer(encrypted=True, certificate=CERTIFICATE)
    for asked in (b"", b"None", b"\0*\0*", b"ada"):
        assert asyncio.run(logins.step(1, peer, "EXTERNAL", asked)).name == "ada"  # type: ignore[union-attr]
    with pytest.raises(LoginRefused, match="another user"):
        asyncio.run(logins.step(1, peer, "EXTERNAL", b"old"))


class Handshake:
    """A mechanism of another package, with three steps."""

    name = "X-SHAKE"
    clear = False

    def __init__(self, services: MechanismServices, peer: RemotePeer | None = None) -> None:
        self.services = services
        self.peer = peer or RemotePeer()
        self.left = 3

    def offered(self, peer: RemotePeer) -> bool:
        return True

    def begin(self, peer: RemotePeer) -> Steps:
        return Handshake(self.services, peer)

    async def step(self, response: bytes) -> bytes | User:
        self.left -= 1
        return b"shake" if self.left else self.services.access.admit("ada", self.peer)


def test_a_step_that_fails_as_nothing_should_is_a_refusal(
    access: Access, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every client gets an answer."""

    async def fail(self: Any, response: bytes) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("headrace.gateway.sasl.password.PasswordSteps.step", fail)
    logins = Logins(load("PLAIN", MechanismServices(access)))
    with pytest.raises(LoginRefused, match="could not be checked"):
        asyncio.run(logins.step(7, RemotePeer(), "PLAIN", b"\0ada\0secret"))
    assert "ZeroDivisionError" in caplog.text


def test_a_mechanism_can_be_plugged_in(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("X-SHAKE", f"{__name__}:Handshake", "headrace.sasl")

    def entry_points(*, group: str, name: str) -> list[Any]:
        return [point] if (group, name) == (point.group, point.name) else []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: Handshake)
    logins = Logins(load("X-SHAKE PLAIN", MechanismServices(access)))
    assert logins.offered(RemotePeer()) == ["X-SHAKE", "PLAIN"]
    for _ in range(2):
        assert asyncio.run(logins.step(7, RemotePeer(), "X-SHAKE", b"hand")) == b"shake"
    assert isinstance(asyncio.run(logins.step(7, RemotePeer(), "X-SHAKE", b"hand")), User)
    with pytest.raises(MechanismError, match="no mechanism CRAM-MD5"):
        load("CRAM-MD5", MechanismServices(access))
    with pytest.raises(MechanismError, match="one mechanism"):
        load(" ", MechanismServices(access))
