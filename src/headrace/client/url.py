# SPDX-License-Identifier: Apache-2.0
"""The URL of a broker (amqp://user:password@host:port/vhost?heartbeat=30) and its settings.

A URL may name several brokers, with commas between their hosts.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.client.errors import InvalidUrl
from headrace.spec.tables import V0_9_1, Version

PORT = 5672
PORT_TLS = 5671
FRAME_MIN_SIZE = 4096  # Every peer must accept frames of this size (0-9-1 section 4.2.3).
FRAME_MAX = 131072
CHANNEL_MAX = 2047
HEARTBEAT_S = 60
HOSTS_MAX = 32  # The maximum number of hosts of one URL.
MECHANISMS = (
    *("PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "EXTERNAL", "ANONYMOUS"),
    *("XOAUTH2", "OAUTHBEARER"),  # The password of the URL is the token.
)

_INTEGER = re.compile(r"[0-9]{1,10}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_AUTHORITY_END = re.compile("[/?#]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Secret(str):
    """A string that stays out of reprs, and so out of logs and tracebacks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


GUEST = Secret("guest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one connection; its repr never shows the password."""

    host: str = "localhost"
    port: int = PORT
    tls: bool = False
    username: str = "guest"
    password: Secret = GUEST
    vhost: str = "/"
    heartbeat_s: int = HEARTBEAT_S
    frame_max: int = FRAME_MAX
    channel_max: int = CHANNEL_MAX
    connection_attempts: int = 1
    retry_delay_s: float = 1.0
    connection_timeout_s: float = 10.0
    name: str = ""
    mechanism: str = ""  # The SASL mechanism; "" chooses one that the broker offers.
    version: Version = V0_9_1
    insist: bool = False  # True forbids the broker to redirect the client.
    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    verify: bool = True  # Verify the broker's certificate and its name.
    server_name: str = ""

    @property
    def address(self) -> str:
        """The URL without user and password, for messages and logs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}/{self.vhost}"

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context that verifies certificate and host name, unless `verify` is False."""
        context = ssl.create_default_context(cafile=self.cacertfile or None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certfile:
            context.load_cert_chain(self.certfile, self.keyfile or None)
        return context


def parse_urls(url: str) -> list[Settings]:
    """Parse a URL that may name several brokers; return the settings of each, in order.

    Raises:
        InvalidUrl: a part of it is malformed, or it names more than HOSTS_MAX brokers.
    """
    urls = one_by_one(url)
    if len(urls) > HOSTS_MAX:
        raise InvalidUrl(f"the URL names {len(urls)} brokers; at most {HOSTS_MAX} are allowed")
    return [_parse(broker_url) for broker_url in urls]


def parse_url(url: str) -> Settings:
    """Parse the URL of one broker; missing parts have their defaults. Raises InvalidUrl."""
    if len(one_by_one(url)) > 1:
        raise InvalidUrl("the URL names several brokers, where it must be one")
    return _parse(url)


def one_by_one(url: str) -> list[str]:
    """Split a URL with several hosts into one URL for each host, in order."""
    scheme, separator, remainder = url.partition("://")
    match = _AUTHORITY_END.search(remainder)
    authority_end = len(remainder) if match is None else match.start()
    login, at_sign, hosts = remainder[:authority_end].rpartition("@")
    prefix, suffix = f"{scheme}{separator}{login}{at_sign}", remainder[authority_end:]
    if not separator or "," not in hosts:
        return [url]
    addresses = [address.strip() for address in hosts.split(",")]
    if not all(addresses):
        raise InvalidUrl("a host between two commas of the URL is missing")
    return [f"{prefix}{address}{suffix}" for address in addresses]


def _parse(url: str) -> Settings:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # The text of this error may contain a part of the password.
        raise InvalidUrl("malformed host or port in the URL of a broker") from None
    if parts.scheme not in ("amqp", "amqps"):
        raise InvalidUrl(f"the URL must start with amqp:// or amqps://, not {parts.scheme!r}")
    if parts.fragment:
        raise InvalidUrl("a '#' in the URL of a broker must be written as %23")
    tls = parts.scheme == "amqps"
    if port == 0:
        raise InvalidUrl("port 0 cannot be connected to")
    values: dict[str, str] = {}
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidUrl("malformed query in the URL of a broker") from None
    for key, value in pairs:
        if key not in _PARAMETERS:
            names = ", ".join(sorted(_PARAMETERS))
            raise InvalidUrl(f"unknown parameter {key!r} in the URL of a broker; known: {names}")
        if key in values:
            raise InvalidUrl(f"parameter {key!r} appears twice in the URL of a broker")
        values[key] = value
    settings = Settings(
        host=_decode(host, "host") if host else "localhost",
        port=port if port is not None else (PORT_TLS if tls else PORT),
        tls=tls,
        username="guest" if parts.username is None else _decode(parts.username, "user name"),
        password=Secret("guest" if parts.password is None else _decode(parts.password, "password")),
        vhost=_decode(parts.path[1:], "virtual host") or "/",
        heartbeat_s=_integer(values, "heartbeat", HEARTBEAT_S, 0, 65535),
        frame_max=_integer(values, "frame_max", FRAME_MAX, FRAME_MIN_SIZE, 2**31 - 1),
        channel_max=_integer(values, "channel_max", CHANNEL_MAX, 1, 65535),
        connection_attempts=_integer(values, "connection_attempts", 1, 1, 1_000_000),
        retry_delay_s=_number(values, "retry_delay", 1.0),
        connection_timeout_s=_number(values, "connection_timeout", 10.0),
        name=values.get("name", ""),
        mechanism=values.get("auth_mechanism", "").upper(),
        cacertfile=values.get("cacertfile", ""),
        certfile=values.get("certfile", ""),
        keyfile=values.get("keyfile", ""),
        verify=_verify(values),
        server_name=values.get("server_name_indication", ""),
        version=_version(values.get("version", V0_9_1.label)),
        insist=_boolean(values, "insist"),
    )
    if settings.mechanism not in ("", *MECHANISMS):
        raise InvalidUrl(
            f"auth_mechanism {settings.mechanism!r} is not one of {', '.join(MECHANISMS)}"
        )
    if not tls and any(values.get(key) for key in _TLS_PARAMETERS):
        raise InvalidUrl("TLS parameters need an amqps:// URL")
    if settings.keyfile and not settings.certfile:
        raise InvalidUrl("keyfile needs certfile")
    if len(settings.vhost.encode()) > 255:
        raise InvalidUrl("the name of the virtual host is longer than 255 bytes")
    return settings


_TLS_PARAMETERS = ("cacertfile", "certfile", "keyfile", "verify", "server_name_indication")
_PARAMETERS = {
    "heartbeat",
    "frame_max",
    "channel_max",
    "connection_attempts",
    "retry_delay",
    "connection_timeout",
    "name",
    "auth_mechanism",
    "version",
    "insist",
    *_TLS_PARAMETERS,
}


def _version(label: str) -> Version:
    for version in Version:
        if version.label == label:
            return version
    labels = ", ".join(version.label for version in Version)
    raise InvalidUrl(f"version={label!r} is not one of {labels}")


def _verify(values: dict[str, str]) -> bool:
    text = values.get("verify", "verify_peer")
    if text not in ("verify_peer", "verify_none"):
        raise InvalidUrl(f"verify={text!r} is neither verify_peer nor verify_none")
    return text == "verify_peer"


def _boolean(values: dict[str, str], key: str) -> bool:
    text = values.get(key, "0").lower()
    if text not in ("0", "1", "false", "true"):
        raise InvalidUrl(f"{key}={text!r} is neither 0 nor 1")
    return text in ("1", "true")


def _decode(text: str, part: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise InvalidUrl(f"the {part} has a '%' without two hexadecimal digits; write it as %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidUrl(f"the {part} is not UTF-8 after percent-decoding") from None


def _integer(values: dict[str, str], key: str, default: int, minimum: int, maximum: int) -> int:
    text = values.get(key)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text) or not minimum <= int(text) <= maximum:
        raise InvalidUrl(f"{key}={text!r} is not a whole number from {minimum} to {maximum}")
    return int(text)


def _number(values: dict[str, str], key: str, default: float) -> float:
    text = values.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise InvalidUrl(f"{key}={text!r} is not a number of seconds")
    return float(text)
