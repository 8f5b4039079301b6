# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: whose, for whom, for how long, signed how; scopes; where keys come from."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import http.server
import json
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from headrace.gateway.oauth.keys import KEYS_MAX, Keys, NoKey, read_set
from headrace.gateway.oauth.scopes import (
    ALIASES_MAX,
    ScopeError,
    Scopes,
    find_values,
    read_aliases,
    read_scopes,
)
from headrace.gateway.oauth.tokens import TokenRules, Tokens, Trust
from headrace.gateway.security.access import Access
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.gateway.security.throttle import Throttle
from headrace.server.config.settings import Settings
from headrace.server.login.jwks import SIZE_MAX, make_discovery_loader, make_loader
from headrace.server.login.token_issuers import KeyRing, TrustedIssuers, TrustError
from headrace.store.catalog.users import UserDirectory
from support.certificates_and_tokens import EVERYTHING, RESOURCE, Certificates, Issuer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.gateway.security.user import User

NOW = 1_800_000_000
ISSUER = "https://issuer.example"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


_open = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _directories_are_closed() -> Iterator[None]:
    yield
    _open.close()


def directory() -> UserDirectory:
    """An empty directory of users, which is closed after the test."""
    return _open.enter_context(contextlib.closing(UserDirectory()))


def tokens_of(*issuers: Issuer, **rules: Any) -> Tokens:
    async def load() -> bytes:
        return json.dumps({"keys": [one.jwk() for one in issuers]}).encode()

    access = Access(directory(), throttle=Throttle(delay_s=0.0), wall_clock=lambda: NOW)
    given = {"resource_server_ids": (RESOURCE,), "issuer": ISSUER}
    return Tokens(access, [Trust(Keys(load), TokenRules(**{**given, **rules}))], clock=lambda: NOW)


def tokens_by(settings: Settings) -> Tokens | None:
    """As a broker with these settings makes them."""
    trusts = TrustedIssuers(settings, KeyRing()).trusts
    return Tokens(Access(directory()), trusts) if trusts else None


def check(tokens: Tokens, token: str) -> User:
    return asyncio.run(tokens.user(token.encode(), RemotePeer()))


def make(issuer: Issuer, *scopes: str, **claims: Any) -> str:
    return issuer.token(*scopes, **{"iss": ISSUER, "exp": NOW + 60, **claims})


def test_a_good_token_names_its_bearer(issuer: Issuer) -> None:
    user = check(tokens_of(issuer), make(issuer, *EVERYTHING, "tag:monitoring", "tag:x"))
    assert (user.name, user.tags, user.source) == ("tess", ("monitoring",), f"oauth {ISSUER}")
    assert user.expires_s == NOW + 60
    assert user.may_open("any")
    named = make(issuer, name=None, client_id="app")  # type: ignore[arg-type]  # No subject.
    assert check(tokens_of(issuer), named).name == "app"
    assert check(tokens_of(issuer), make(issuer, aud=RESOURCE)).name == "tess"


def test_a_good_token_of_one_key_needs_no_key_id(issuer: Issuer) -> None:
    body = {"sub": "a", "aud": RESOURCE, "iss": ISSUER, "exp": NOW + 1}
    token = jwt.encode(body, issuer.key, "ES256")
    assert check(tokens_of(issuer), token).name == "a"
    with pytest.raises(LoginRefused, match="no key"):
        check(tokens_of(issuer, Issuer("two")), token)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW},
        {"exp": NOW - 1},
        {"exp": None},
        {"exp": NOW + 60.5},  # CVE-2026-67242: a float.
        {"exp": str(NOW + 60)},
        {"exp": True},
        {"exp": -1},
        {"exp": 1 << 60},
        {"nbf": NOW + 1},
        {"nbf": "soon"},
        {"iat": 1.5},
        {"aud": None},
        {"aud": ["another"]},
        {"aud": f"{RESOURCE}2"},
        {"iss": None},
        {"iss": "https://evil.example"},
        {"iss": f"{ISSUER}/"},
        {"name": None},
        {"name": ""},
        {"name": "a\nb"},
        {"name": "\ud800"},
        {"name": "a" * 300},
        {"scope": 7},
        {"scope": [1]},
        {"scope": " ".join(f"{RESOURCE}.read:*/{n}" for n in range(300))},
    ],
    ids=lambda claims: str(claims)[:50],
)
def test_a_token_of_another_time_audience_or_issuer_is_refused(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    with pytest.raises(LoginRefused, match="bearer token"):
        check(tokens_of(issuer), make(issuer, **claims))


def test_forged_tokens_are_refused(issuer: Issuer) -> None:
    """Unsigned, signed by another, signed with the public key as a secret, changed, cut."""
    tokens = tokens_of(issuer)
    good = make(issuer, *EVERYTHING)
    head, body, signature = good.split(".")
    pem = issuer.key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    other = make(issuer, name="root").split(".")[1]
    unsigned = make(issuer, algorithm="none", key=None)
    for forged in (
        make(Issuer(), *EVERYTHING),  # The same key id, another key.
        make(Issuer("unknown"), *EVERYTHING),
        confused(body, pem),
        unsigned,
        f"{unsigned}{signature}",
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}",
        make(issuer, headers={"crit": ["exp"]}),
        make(issuer, headers={"kid": "../../etc/passwd"}),
        "eyJ..",
        "eyJhbGciOiJFUzI1NiJ9.e30.AA",
        "eyJ" + "[" * 5000 + "..",
        "\u00e9.b.c",
    ):
        with pytest.raises(LoginRefused):
            check(tokens, forged)
    assert check(tokens, good).name == "tess"


def confused(body: str, public: bytes) -> str:
    """A token that takes the public key for a shared secret."""
    said = b'{"alg":"HS256","kid":"one","typ":"JWT"}'
    head = base64.urlsafe_b64encode(said).rstrip(b"=").decode()
    signature = hmac.digest(public, f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_algorithms_are_those_that_are_allowed(issuer: Issuer) -> None:
    with pytest.raises(LoginRefused, match="not allowed"):
        check(tokens_of(issuer, algorithms=("RS256",)), make(issuer))
    with pytest.raises(LoginRefused):  # Not even where shared secrets are allowed.
        check(tokens_of(issuer, algorithms=("HS256",)), confused("e30", b"x"))


def test_clocks_may_differ_by_so_much(issuer: Issuer) -> None:
    tokens = tokens_of(issuer, leeway_s=5)
    assert check(tokens, make(issuer, exp=NOW - 4, nbf=NOW + 5)).expires_s == NOW + 1
    with pytest.raises(LoginRefused, match="expired"):
        check(tokens, make(issuer, exp=NOW - 5))


def test_rights_end_with_the_token(issuer: Issuer) -> None:
    now = [float(NOW)]
    tokens = tokens_of(issuer)
    user = check(tokens, make(issuer, *EVERYTHING))
    access = tokens._access
    access._wall_clock = lambda: now[0]
    assert access.allowed(user, "/", "read", "q")
    now[0] = NOW + 60
    assert not access.allowed(user, "/", "read", "q")
    assert not access.topic_allowed(user, "/", "read", "amq.topic", "a")
    assert not user.may_open("/")


@pytest.mark.parametrize(
    ("scope", "asked", "verdict"),
    [
        ("read:*/*", ("/", "read", "q"), True),
        ("read:*/*", ("/", "write", "q"), False),
        ("read:%2F/q", ("/", "read", "q"), True),
        ("read:%2F/q", ("/", "read", "qq"), False),
        ("read:%2F/q", ("/x", "read", "q"), False),
        ("read:a*z/q*", ("abcz", "read", "queue"), True),
        ("read:a.c/q", ("abc", "read", "q"), False),  # A dot is a dot.
        ("read:*/%2A", ("/", "read", "q"), False),  # So is an asterisk that is escaped.
        ("read:*/q\n", ("/", "read", "q"), False),
        ("read:*", ("/", "read", "q"), False),
        ("read:*/*/*/*", ("/", "read", "q"), False),
        ("read:/q", ("", "read", "q"), False),
        ("Read:*/*", ("/", "read", "q"), False),
        ("read:%FF/*", ("\ufffd", "read", "q"), False),
    ],
)
def test_a_scope_is_a_permission(scope: str, asked: tuple[str, str, str], verdict: bool) -> None:
    scopes = Scopes([f"h.{scope}", scope, f"other.{scope}"], "h.")
    assert scopes.allowed(*asked) is verdict
    assert scopes.allowed(*asked) is verdict  # From memory.
    assert not Scopes([scope, f"other.{scope}"], "h.").allowed(*asked)


def test_the_third_part_of_a_scope_is_about_topics() -> None:
    scopes = Scopes(["h.write:*/x/news.*", "h.write:*/y"], "h.")
    assert scopes.topic_allowed("/", "write", "x", "news.today")
    assert not scopes.topic_allowed("/", "write", "x", "olds")
    assert scopes.topic_allowed("/", "write", "y", "olds")
    assert scopes.may_open("/")
    assert not Scopes(["h.tag:administrator"], "h.").may_open("/")


def test_scopes_are_bounded_and_linear() -> None:
    with pytest.raises(ScopeError, match="more than 256"):
        Scopes([f"read:*/{n}" for n in range(257)], "")
    Scopes([f"openid-{n}" for n in range(1000)] + ["read:*/*"] * 300, "")
    began = time.process_time()
    scopes = Scopes(["read:" + "a*" * 200 + "/b", "read:" + "*" * 900 + "/b"], "")
    assert not scopes.allowed("a" * 255, "read", "c")
    assert time.process_time() - began < 1.0
    assert read_scopes({"scope": ["a b", "c"]}, ["scope"], "h") == ["a", "b", "c"]
    assert read_scopes({"scope": None}, ["scope", "roles"], "h") == []
    deep: Any = "x"
    for _ in range(50):
        deep = [{"a": deep}]
    assert list(find_values(deep, ".".join(["a"] * 50))) == ["x"]


# --- Tokens of others, as they come -------------------------------------------------------------

ALIASES = {
    "Queue.Admin": ("tag:administrator", "configure:*/*"),
    "reader": (f"{RESOURCE}.read:*/*",),
}


@pytest.mark.parametrize(
    ("claims", "paths"),
    [
        ({"roles": ["Queue.Admin", "reader"]}, "roles"),  # Entra ID: roles of an application.
        ({"scp": "openid Queue.Admin reader"}, "scope scp"),  # And what a user consented to.
        ({"realm_access": {"roles": ["Queue.Admin", "reader"]}}, "realm_access.roles"),  # Keycloak
        (
            {"resource_access": {"a.b": {"roles": ["Queue.Admin"]}, "x": {"roles": ["reader"]}}},
            "resource_access.a.b.roles resource_access.x.roles",
        ),
        (
            {"authorization": {"permissions": [{"scopes": ["Queue.Admin"]}, {"scopes": "reader"}]}},
            "authorization.permissions.scopes",
        ),
        (
            {"https://a.example/roles": ["Queue.Admin", "reader"]},
            "https://a.example/roles",
        ),  # Auth0
        ({"permissions": ["Queue.Admin", "reader"]}, "permissions"),
        (
            {"extra": {RESOURCE: ["tag:administrator", "configure:*/*", "read:*/*"], "b": "z"}},
            "extra",
        ),
    ],
)
def test_roles_and_scopes_are_found_where_others_put_them(
    issuer: Issuer, claims: dict[str, Any], paths: str
) -> None:
    tokens = tokens_of(issuer, scope_claims=tuple(paths.split()), aliases=ALIASES)
    user = check(tokens, make(issuer, **{"scope": None, **claims}))
    assert user.tags == ("administrator",)
    assert user.grants is not None
    assert user.grants.allowed("/", "configure", "q")
    assert user.grants.allowed("/", "read", "q")
    assert not user.grants.allowed("/", "write", "q")
    unaware = check(tokens_of(issuer), make(issuer, **{"scope": None, **claims}))
    assert not unaware.tags
    assert not unaware.may_open("/")


def test_an_alias_is_a_whole_scope_and_leads_to_no_other(issuer: Issuer) -> None:
    tokens = tokens_of(issuer, aliases={**ALIASES, "a": ("reader",)})
    for scope in ("Queue.Admin2", "queue.admin", f"{RESOURCE}.reader", "a", "Queue"):
        assert not check(tokens, make(issuer, scope=scope)).may_open("/")


def test_the_name_is_found_where_others_put_it(issuer: Issuer) -> None:
    claims = ("preferred_username", "user.name", "sub")
    tokens = tokens_of(issuer, username_claims=claims)
    assert check(tokens, make(issuer, preferred_username="ann")).name == "ann"
    assert check(tokens, make(issuer, user={"name": "bea"})).name == "bea"
    assert check(tokens, make(issuer, preferred_username=["x"], user=7)).name == "tess"


def test_prefixes_and_audiences_are_as_they_are_set(issuer: Issuer) -> None:
    both = tokens_of(issuer, resource_server_ids=("prod", "dev"))
    user = check(both, make(issuer, aud=["dev", "x"], scope="dev.read:*/d prod.read:*/p"))
    assert user.grants is not None
    assert user.grants.allowed("/", "read", "d")
    assert not user.grants.allowed("/", "read", "p")
    with pytest.raises(LoginRefused, match=r"aud names several resource servers .* prod, dev"):
        check(both, make(issuer, aud=["dev", "prod"]))
    with pytest.raises(LoginRefused):
        check(both, make(issuer, aud=["devprod"]))
    for prefix, scope in (("", "read:*/*"), ("api://h:", "api://h:read:*/*")):
        bearer = check(tokens_of(issuer, scope_prefix=prefix), make(issuer, scope=scope))
        assert bearer.may_open("/")
    loose = tokens_of(issuer, verify_audience=False)
    for aud in (None, "account", ["a", "b"]):
        assert check(loose, make(issuer, *EVERYTHING, aud=aud)).may_open("/")
    with pytest.raises(LoginRefused):  # It is signed by another all the same.
        check(loose, make(Issuer(), *EVERYTHING, aud=None))


def test_variables_stand_for_themselves_alone() -> None:
    """A claim of a token cannot become a pattern, nor another part of a scope."""
    given = ["read:{vhost}/{sub}-*", "write:*/{vhost}", "configure:*/{missing}", "write:*/{n}x"]

    def of(sub: str) -> Scopes:
        return Scopes(given, "", claims={"sub": sub, "n": 7})

    ada = of("ada")
    assert ada.allowed("/", "read", "ada-1")
    assert not ada.allowed("/", "read", "bob-1")
    assert ada.allowed("lab", "write", "lab")
    assert not ada.allowed("lab", "write", "/")
    assert not ada.allowed("/", "configure", "missing")
    assert not ada.allowed("/", "write", "7x")
    for evil in ("*", "a/b", "%2A", ".*", "{vhost}", "\ud800", ""):
        assert not of(evil).allowed("/", "read", "bob-1")
    assert of("*").allowed("/", "read", "*-1")


@pytest.mark.parametrize("sub", ["ada", "*", "a/b", "%2A", "{vhost}", "\ud800", "", "x" * 2000])
def test_another_broker_makes_the_same_scopes_of_what_was_found(sub: str) -> None:
    given = ["h.read:{vhost}/{sub}-*", "h.write:*/{vhost}", "h.configure:*/{missing}", "other"]
    aliases = {"admins": ("tag:administrator", "h.configure:lab/{sub}")}
    found = Scopes([*given, "admins"], "h.", aliases=aliases, claims={"sub": sub})
    again = Scopes.from_texts(json.loads(json.dumps(found.texts)))
    assert again.tags == found.tags == ("administrator",)
    for permission in ("configure", "write", "read"):
        for vhost in ("/", "lab", "{vhost}"):
            for name in ("ada-1", "*-1", "-1", "a/b-1", "ada", "", "lab", "/", "missing"):
                asked = (vhost, permission, name)
                assert again.allowed(*asked) is found.allowed(*asked)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"oauth_scope_aliases": "admin"}, "is not alias=scope"),
        ({"oauth_scope_aliases": "=read:*/*"}, "is not alias=scope"),
        ({"oauth_scope_aliases": "a=read:*/*,"}, "is not alias=scope"),
        ({"oauth_scope_aliases": "a=reed:*/*"}, "neither a permission nor a tag"),
        ({"oauth_scope_aliases": "a=read:*"}, "neither a permission nor a tag"),
        ({"oauth_scope_aliases": "a=tag:root"}, "neither a permission nor a tag"),
        ({"oauth_scope_aliases": " ".join(f"a{n}=read:*/*" for n in range(2000))}, "aliases"),
        ({"oauth_algorithms": "RS256 none"}, "must be signed"),
        ({"oauth_algorithms": ""}, "must be signed"),
        ({"oauth_algorithms": "RS255"}, "unknown algorithms RS255"),
        ({"oauth_resource_server_id": ""}, "needs oauth_resource_server_id"),
        ({"oauth_verify_audience": False}, "oauth_issuer must be set"),
        ({"oauth_jwks": "", "oauth_issuer": "http://a"}, "setting oauth_issuer "),
    ],
)
def test_settings_that_would_admit_too_many_users_or_none_are_refused(
    changed: dict[str, Any], said: str
) -> None:
    given = {"oauth_jwks": "keys.json", "oauth_resource_server_id": RESOURCE}
    with pytest.raises(TrustError, match=said):
        tokens_by(Settings(**{**given, **changed}))


def test_settings_become_rules() -> None:
    settings = Settings(
        oauth_issuer="https://a.example",
        oauth_resource_server_id="prod dev",
        oauth_scope_prefix="none",
        oauth_scope_aliases="api%3A//h%3Dx=read:%2F/a%2Cb,tag:monitoring",
    )
    tokens = tokens_by(settings)
    assert tokens is not None
    rules = tokens._trusts["https://a.example"].rules
    assert rules.scope_prefix == ""
    assert rules.resource_server_ids == ("prod", "dev")
    assert rules.aliases == {"api://h=x": ("read:%2F/a%2Cb", "tag:monitoring")}
    assert tokens_by(Settings()) is None
    with pytest.raises(ScopeError, match="more than"):
        read_aliases(" ".join(f"a{n}=b" for n in range(ALIASES_MAX + 1)))


def test_keys_are_read_again_in_time_and_kept_when_that_fails(issuer: Issuer) -> None:
    now, read, sets = [0.0], [], [json.dumps({"keys": [issuer.jwk()]}).encode()]

    async def load() -> bytes:
        read.append(now[0])
        if not sets:
            raise OSError("no answer")
        return sets[0]

    async def steps() -> None:
        keys = Keys(load, fresh_s=600, clock=lambda: now[0])
        assert (await keys.find("one")).kid == "one"
        await keys.find("one")
        assert read == [0.0]
        with pytest.raises(NoKey):  # An unknown key has them read again, but not at any rate.
            await keys.find("two")
        assert read == [0.0]
        now[0] = 31.0
        sets[0] = json.dumps({"keys": [issuer.jwk(), Issuer("two").jwk()]}).encode()
        assert (await keys.find("two")).kid == "two"
        assert read == [0.0, 31.0]
        sets.clear()
        now[0] = 700.0
        assert (await keys.find("two")).kid == "two"
        now[0] = 90_000.0
        with pytest.raises(NoKey):
            await keys.find("two")

    asyncio.run(steps())


def test_a_key_that_is_withdrawn_is_no_longer_good(issuer: Issuer) -> None:
    now, listed = [0.0], [issuer, Issuer("two")]

    async def load() -> bytes:
        return json.dumps({"keys": [one.jwk() for one in listed]}).encode()

    async def steps() -> None:
        keys = Keys(load, fresh_s=600, clock=lambda: now[0])
        await keys.find("two")
        del listed[1]
        now[0] = 600.0
        with pytest.raises(NoKey):
            await keys.find("two")

    asyncio.run(steps())


@pytest.mark.parametrize(
    "octets",
    [b"", b"[]", b"{}", b'{"keys": 7}', b"[" * 100_000, b"\xff", b'{"keys": {"a": 1}}'],
)
def test_what_is_no_set_of_keys_is_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match=r"a set|Key Set"):
        read_set(octets)


def test_keys_for_something_else_are_passed_over(issuer: Issuer) -> None:
    odd = [7, {}, {"kty": "EC"}, {"kty": "X"}, issuer.jwk(use="enc"), issuer.jwk(alg="ES256")]
    assert [key.algorithm for key in read_set(json.dumps({"keys": odd}).encode())] == ["ES256"]
    with pytest.raises(ValueError, match="at most"):
        read_set(json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode())


class Site(http.server.BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        status, body = {
            "/keys": (200, b'{"keys": []}'),
            "/error": (500, b'{"keys": []}'),
            "/moved": (302, b""),
            "/large": (200, b"x" * (SIZE_MAX + 1)),
            **self.issuers(),
        }[self.path]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def issuers(self) -> dict[str, tuple[int, bytes]]:
        """Documents of issuers by path; one is valid."""
        server: Any = self.server
        home = f"https://localhost:{server.server_port}"
        told: dict[str, Any] = {
            "good": {"issuer": f"{home}/good", "jwks_uri": f"{home}/keys"},
            "other": {"issuer": f"{home}/good", "jwks_uri": f"{home}/keys"},
            "clear": {"issuer": f"{home}/clear", "jwks_uri": "http://localhost/keys"},
            "odd": {"issuer": f"{home}/odd", "jwks_uri": [7]},
            "list": [1],
            "gone": {"issuer": f"{home}/gone", "jwks_uri": f"{home}/error"},
        }
        return {
            f"/{name}/.well-known/openid-configuration": (200, json.dumps(each).encode())
            for name, each in told.items()
        }

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Certificates]]:
    certificates = Certificates(tmp_path_factory.mktemp("site"))
    cert, key, _ = certificates.issue("localhost", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://localhost:{server.server_port}", certificates
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_come_from_an_address_that_is_verified(site: tuple[str, Certificates]) -> None:
    """CVE-2026-67404, CVE-2026-67409: certificate, name and status are checked."""
    address, certificates = site

    def fetch(path: str, ca: Path | None = certificates.ca) -> bytes:
        async def load() -> bytes:
            return await make_loader(address.replace("localhost", "localhost") + path, ca)()

        return asyncio.run(load())

    assert fetch("/keys") == b'{"keys": []}'
    with pytest.raises(ssl.SSLCertVerificationError):
        fetch("/keys", None)
    for path, said in (("/error", "status 500"), ("/moved", "status 302"), ("/large", "bytes")):
        with pytest.raises(ValueError, match=said):
            fetch(path)
    port = address.rpartition(":")[2]
    with pytest.raises(ssl.SSLCertVerificationError):  # Another name than the certificate's.
        asyncio.run(fetch_from(f"https://127.0.0.1:{port}/keys", certificates.ca))


def test_keys_are_found_where_their_issuer_says(site: tuple[str, Certificates]) -> None:
    """As OpenID Connect has it; an issuer that is another, or names no https address, has none."""
    address, certificates = site

    def discover(name: str) -> bytes:
        async def load() -> bytes:
            return await make_discovery_loader(f"{address}/{name}", certificates.ca)()

        return asyncio.run(load())

    assert discover("good") == b'{"keys": []}'
    for name, said in (
        ("other", "names the issuer"),
        ("clear", "neither a file nor an https address"),
        ("odd", "neither a file nor an https address"),
        ("list", "does not name the address of its keys"),
        ("gone", "status 500"),
    ):
        with pytest.raises(ValueError, match=said):
            discover(name)


async def fetch_from(address: str, ca: Path) -> bytes:
    return await make_loader(address, ca)()


@pytest.mark.parametrize("source", ["http://a/keys", "ftp://a", "https://", "https://u@h/k"])
def test_keys_do_not_come_from_elsewhere(source: str) -> None:
    with pytest.raises(ValueError, match="https address"):
        make_loader(source)


def test_keys_come_from_a_file(tmp_path: Path, issuer: Issuer) -> None:
    async def load(path: Path) -> bytes:
        return await make_loader(str(path))()

    assert len(read_set(asyncio.run(load(issuer.write(tmp_path / "keys.json"))))) == 1
    (tmp_path / "large").write_bytes(b" " * (SIZE_MAX + 1))
    with pytest.raises(ValueError, match="bytes"):
        asyncio.run(load(tmp_path / "large"))
