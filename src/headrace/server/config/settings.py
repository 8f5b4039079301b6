# SPDX-License-Identifier: Apache-2.0
"""Every setting of the broker, declared once.

A field of `Settings` is a flag of ``headrace serve`` (``--frame-max``), an environment variable
(``HEADRACE_FRAME_MAX``), a key of the TOML file given by ``--config`` (``frame_max``), and a row
of ``docs/reference/settings.md``. A flag beats a variable, that beats the file, and that the
default.
"""

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model.arguments.memory_estimate import DEFAULT_OCTETS_MAX

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

ENVIRONMENT_PREFIX = "HEADRACE_"
MISSPELT = 0.85  # Similarity of two names, of 1, from which one may be a misspelling of the other.
CONFIG_VARIABLE = "HEADRACE_CONFIG"
# Variables that commands read beside the settings, and those of builds and tests.
OTHER_VARIABLES = (
    "config",
    "url",
    "management_socket",
    "migrate_from",
    "spark_cache",
    "pure",
    "build",
    "seeds",
    "foreign",
    "sanitize",
)
FOREIGN_VARIABLES = ("test_", "interop_", "service_", "port_")  # The last two are Kubernetes'.

_UNITS = {"": 1, "b": 1, "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB}
_UNITS |= {"t": 1 << 40, "tib": 1 << 40}
_LINK = re.compile(r"(tcp|udp|sctp)://")
_SIZE = re.compile(r"(\d{1,15})\s*([a-z]*)", re.IGNORECASE)
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def size_of(text: str) -> int | None:
    """Return the bytes of a size such as 64MiB; None when it is none."""
    found = _SIZE.fullmatch(text.strip())
    factor = None if found is None else _UNITS.get(found[2].lower())
    return None if found is None or factor is None else int(found[1]) * factor


class StartError(Exception):
    """The broker cannot start; the text says why in one sentence."""


class SettingError(ValueError):
    """A setting that cannot be used; the text says which, from where, and why."""

    def __init__(self, name: str, source: str, reason: str) -> None:
        super().__init__(f"setting {name} (from {source}): {reason}")
        self.name = name
        self.source = source
        self.reason = reason


def setting(
    default: object,
    words: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    many: bool = False,
) -> Any:
    """Declare one setting; typed as Any so that the field's own type holds."""
    about = {"help": words, "unit": unit, "low": low, "high": high, "choices": choices}
    about |= {"many": many}
    return dataclasses.field(default=default, repr=not secret, metadata=about | {"secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a broker."""

    host: str = setting(
        "127.0.0.1",
        "Addresses to listen on, separated by commas; 0.0.0.0 for every interface, :: for every "
        "interface with IPv6 as well.",
        many=True,
    )
    port: int = setting(5672, "Port for AMQP; 0 picks a free one.", low=0, high=65535)
    tls_port: int | None = setting(
        None, "Port for AMQP over TLS; 0 picks a free one; none: no TLS.", low=0, high=65535
    )
    tls_cert: Path | None = setting(None, "Certificate chain of the broker, PEM.")
    tls_key: Path | None = setting(None, "Private key of the certificate, PEM.")
    tls_ca: Path | None = setting(
        None, "Certificate authorities, PEM; when given, clients must show a certificate."
    )
    tls_server_names: str = setting(
        "",
        "Further certificates by the name that clients ask for (SNI): `name=chain.pem,key.pem`, "
        "separated by spaces; `*.example.org` for all names with one more label.",
    )
    tls_crl: Path | None = setting(
        None, "Certificates of clients that are revoked, PEM: a list of every authority in tls_ca."
    )
    certificate_expiry_closes: bool = setting(
        False, "Close connections when the certificate that their client showed expires."
    )
    relays: int = setting(
        0,
        "Processes that carry clients' connections, and end their TLS; 0: the broker does.",
        low=0,
        high=64,
    )
    proxy_protocol_from: str = setting(
        "",
        "Addresses and networks of load balancers, separated by commas: their connections begin "
        "with a header of the PROXY protocol, version 1 or 2, which names the client.",
        many=True,
    )
    data: Path = setting(Path("headrace-data"), "Directory that keeps messages and definitions.")
    cluster: str = setting(
        "",
        "Database that replicates everything, and that brokers of a cluster share: "
        "`postgresql://user@host1,host2/database`; empty: this broker is alone. Needs "
        "`headrace[postgres]`.",
        secret=True,
    )
    cluster_name: str = setting(
        "", "Name of this broker in its cluster; empty: that of the machine."
    )
    cluster_address: str = setting(
        "",
        "`host:port` where the other brokers and their clients reach this one; empty: host and "
        "port.",
    )
    cluster_lease_s: float = setting(
        6.0,
        "How long a broker may be silent before others serve its virtual hosts; the same for all.",
        unit="seconds",
        low=2,
        high=60,
    )
    cluster_lag_max: int = setting(
        64 * MIB,
        "Data of one virtual host that may wait to be replicated; beyond it publishers wait.",
        unit="octets",
        low=1 * MIB,
        high=1 << 40,
    )
    cluster_standbys: bool = setting(
        True,
        "Refuse a database whose commits wait for no standby; otherwise its storage must be "
        "replicated below it.",
    )
    memory: bool = setting(False, "Keep everything in memory; nothing survives the process.")

    frame_max: int = setting(
        131072, "Largest frame, proposed to clients.", unit="octets", low=4096, high=16 * MIB
    )
    channel_max: int = setting(2047, "Channels of one connection.", low=1, high=65535)
    heartbeat_s: int = setting(
        60, "Heartbeat interval proposed to clients; 0 for none.", unit="seconds", low=0, high=65535
    )
    handshake_s: float = setting(
        10.0, "Time a client has to log in and open.", unit="seconds", low=0.5, high=3600
    )
    body_size_max: int = setting(
        128 * MIB, "Largest message body.", unit="octets", low=0, high=4 * GIB
    )
    connections_max: int = setting(65536, "Connections at the same time.", low=1, high=1 << 22)
    read_size: int = setting(
        64 * KIB, "Maximum to read from a socket at once.", unit="octets", low=4096, high=16 * MIB
    )
    output_size_max: int = setting(
        1 * MIB,
        "Output that may be pending on a connection before its consumers get no more deliveries.",
        unit="octets",
        low=4096,
        high=1 * GIB,
    )

    memory_max: int = setting(
        2 * GIB,
        "Memory for queued messages, at most two fifths of the machine's; above it they live on "
        "disk, well above it publishers wait.",
        unit="octets",
        low=1 * MIB,
        high=1 << 50,
    )
    disk_free_min: int = setting(
        128 * MIB,
        "Free disk space below which persistent publishers are blocked.",
        unit="octets",
        low=0,
        high=1 << 50,
    )
    segment_size: int = setting(
        64 * MIB, "Size of one file of the journal.", unit="octets", low=1 * MIB, high=2 * GIB
    )

    stream_store: str = setting(
        "",
        "Object store for old segments of streams, s3://bucket/prefix, gs://, az:// or file://; "
        "empty: none. Credentials are in the environment.",
    )
    stream_cache_size: int = setting(
        GIB,
        "Disk space for segments that readers fetch from stream_store.",
        unit="octets",
        low=64 * MIB,
        high=1 << 50,
    )
    staging_size_max: int = setting(
        64 * GIB,
        "Disk space for the files of one virtual host, staged or queued; beyond it senders wait.",
        unit="octets",
        low=1 * MIB,
        high=1 << 50,
    )
    staging_s: float = setting(
        3600.0,
        "How long a partly staged file is kept for its sender to resume.",
        unit="seconds",
        low=1,
        high=30 * 86400,
    )
    staged_s: float = setting(
        86400.0,
        "How long prepared work of a staged batch is kept for a decision.",
        unit="seconds",
        low=60,
        high=30 * 86400,
    )
    errand_messages_max: int = setting(
        1_000_000,
        "Messages that one job may move, copy or delete; a job with more is refused.",
        unit="messages",
        low=1,
        high=100_000_000,
    )

    group_owner_timeout_s: float = setting(
        30.0,
        "How long a group of readers stays claimed by an owner whose connection is gone.",
        unit="seconds",
        low=0,
        high=86400,
    )
    group_pin_size_max: int = setting(
        1 * GIB,
        "Data that a stream may keep beyond its own limits for groups that pin it.",
        unit="octets",
        low=0,
        high=1 << 50,
    )

    specification_qos: bool = setting(
        False,
        "Read basic.qos as the standard says (channel, or connection with global) instead of as "
        "clients expect (each consumer, or channel with global).",
    )
    ack_timeout_s: float = setting(
        0.0,
        "How long a delivery may stay unacknowledged before it returns to its queue; 0: no limit. "
        "Queues, policies and consumers may override it (x-consumer-timeout).",
        unit="seconds",
        low=0,
        high=1e9,
    )
    ack_timeout_closes: bool = setting(
        False, "Close the channel of a consumer that exceeds the timeout, as RabbitMQ does."
    )
    specification_arguments: bool = setting(
        True,
        "Refuse 0-10 declarations with arguments that are not understood, as the standard says.",
    )
    unknown_arguments: str = setting(
        "default",
        "What to do with unknown arguments of queues where a virtual host has no rule for them; "
        "default refuses what would silently change behaviour and ignores the rest.",
        choices=("default", "refuse", "log", "ignore"),
    )
    default_queue_type: str = setting(
        "classic",
        "Type of durable queues declared without one, where a virtual host has no rule for them.",
        choices=("classic", "quorum", "stream"),
    )
    definitions_size_max: int = setting(
        DEFAULT_OCTETS_MAX,
        "Memory that queues, exchanges and bindings of a virtual host may use, with names and "
        "arguments, where the virtual host has no limit max-definitions-size.",
        unit="octets",
        low=1 << 20,
        high=1 << 50,
    )
    qmf: bool = setting(
        False,
        "Answer in every virtual host what Qpid's tools ask a broker (QMF version 2: qpid-config, "
        "qpid-stat).",
    )
    session_timeout_s: int = setting(
        3600,
        "Longest time that a 0-10 session without a connection is kept.",
        unit="seconds",
        low=0,
        high=1 << 31,
    )
    sessions_detached_max: int = setting(
        1024, "0-10 sessions that are kept without a connection.", low=0, high=1 << 20
    )
    product: str = setting("Headrace", "Product name in the server properties.")
    product_version: str = setting("", "Version in the server properties; empty: this version.")
    tls_product: str = setting("", "Product name on the TLS port; empty: as on the other port.")
    tls_product_version: str = setting("", "Version on the TLS port; empty: as on the other port.")

    known_hosts: str = setting(
        "",
        "Other hosts of each virtual host, sent to clients of all versions but 0-9-1: "
        "`/=host:port,host:port`, separated by spaces.",
    )
    redirect: str = setting(
        "", "Where clients that do not insist are redirected (not in 0-9-1), in the same form."
    )
    realms: str = setting(
        "/data=.* /admin=.*",
        "Access realms for tickets of 0-8 and 0-9: `realm=pattern of the names in it`.",
    )
    tunnel_proxies: str = setting(
        "", "Queues for blocks of the tunnel class: `proxy=queue`, separated by spaces."
    )
    channel_resume_s: float = setting(
        10.0,
        "How long the channels of a lost 0-9 connection can be resumed.",
        unit="seconds",
        low=0,
        high=3600,
    )

    guest_loopback_only: bool = setting(True, "The user guest may log in over loopback only.")
    anonymous_user: str = setting(
        "", "User of clients that log in by SASL ANONYMOUS; empty: refuse them."
    )
    sasl_mechanisms: str = setting(
        "PLAIN AMQPLAIN SCRAM-SHA-256 EXTERNAL OAUTHBEARER XOAUTH2 ANONYMOUS",
        "SASL mechanisms, offered in this order where they can be used; entry points of the group "
        "`headrace.sasl` add more.",
    )
    plain_needs_tls: bool = setting(
        False,
        "Refuse mechanisms that send a clear-text password or token over a connection without TLS.",
    )
    plain_on_loopback: bool = setting(True, "Allow them over loopback without TLS.")
    certificate_name: str = setting(
        "common_name",
        "Where in a client's certificate EXTERNAL finds the name of the user.",
        choices=("common_name", "distinguished_name", "subject_alternative_name"),
    )
    certificate_san: str = setting(
        "dns",
        "Which subject alternative name that is.",
        choices=("dns", "email", "ip", "uri"),
    )
    oauth_jwks: str = setting(
        "",
        "Keys of bearer tokens: a file or an https address of a JSON Web Key Set; empty: those "
        "of oauth_issuer, and without an issuer no tokens are accepted.",
    )
    oauth_jwks_ca: Path | None = setting(
        None, "Certificate authorities for that address, PEM; none: those of the system."
    )
    oauth_resource_server_id: str = setting(
        "", "Accepted audiences (`aud`) of tokens, separated by spaces."
    )
    oauth_verify_audience: bool = setting(
        True, "Accept only tokens for this broker; otherwise oauth_issuer must be set."
    )
    oauth_scope_prefix: str = setting(
        "",
        "Prefix of scopes for this broker; empty: the resource server id and a dot; `none`: "
        "nothing.",
    )
    oauth_scope_claims: str = setting(
        "scope authorization.permissions.scopes",
        "Claims that hold scopes or roles; with dots between them, of claims in claims: "
        "`scope roles realm_access.roles`.",
    )
    oauth_scope_aliases: str = setting(
        "",
        "What scopes or roles of others mean here: `role=scope,scope`, separated by spaces; "
        "reserved characters are percent-encoded.",
    )
    oauth_issuer: str = setting("", "The issuer that tokens must name in `iss`; empty: any issuer.")
    oauth_issuers: Path | None = setting(
        None, "TOML file of further issuers, each with its own settings."
    )
    oauth_algorithms: str = setting(
        "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA",
        "How tokens may be signed.",
    )
    oauth_username_claims: str = setting(
        "sub client_id",
        "Claims that may name the user, with dots as in oauth_scope_claims; the first one counts.",
    )
    oauth_leeway_s: int = setting(
        0, "Allowed clock difference of issuers.", unit="seconds", low=0, high=60
    )
    oauth_keys_s: float = setting(
        600.0,
        "How long keys are used before they are read again.",
        unit="seconds",
        low=10,
        high=86400,
    )
    login_failures_free: int = setting(
        10,
        "Failed logins of an address, or of a user, before the next one is delayed.",
        low=0,
        high=1 << 20,
    )
    login_delay_s: float = setting(
        0.1,
        "Delay after further failures, doubled after each; 0: no delay.",
        unit="seconds",
        low=0,
        high=60,
    )
    login_delay_max_s: float = setting(
        5.0,
        "Maximum delay, and never longer than half of handshake_s.",
        unit="seconds",
        low=0,
        high=60,
    )
    login_forget_s: float = setting(
        300.0,
        "Time after the last failure after which failures are forgotten.",
        unit="seconds",
        low=1,
        high=86400,
    )
    handshakes_max: int = setting(
        8192, "Connections that have not logged in yet.", low=1, high=1 << 22
    )
    handshakes_per_address_max: int = setting(
        1024, "Connections of one address that have not logged in yet.", low=1, high=1 << 22
    )
    connection_rate_per_address: float = setting(
        0.0,
        "New connections per second from one address, over ten seconds; 0: no limit.",
        low=0,
        high=1e6,
    )
    audit_log: Path | None = setting(
        None, "File for the audit log, one JSON object per line; none: no audit log."
    )
    audit_log_size_max: int = setting(
        128 * MIB,
        "Size at which that file is renamed and a new one is started; 0: never.",
        unit="octets",
        low=0,
        high=1 << 50,
    )
    audit_log_keep: int = setting(
        16, "Renamed files of the audit log that are kept; the oldest is removed.", low=1, high=1000
    )
    audit_log_strict: bool = setting(
        False, "Refuse logins and changes while the audit log cannot be written."
    )
    audit_log_sync: bool = setting(
        False, "Sync the audit log to the disk whenever lines were written to it."
    )
    backup_directory: Path | None = setting(
        None,
        "Directory of the backups that users make by name, as by HTTP; none: no such backups.",
    )
    default_user: str = setting("guest", "User made in a new data directory; empty: none.")
    default_pass: str = setting("guest", "Password of that user.", secret=True)
    default_vhost: str = setting("/", "Virtual host made in a new data directory.")

    event_vhost: str = setting(
        "", "Virtual host of the exchange amq.rabbitmq.event; empty: the default one."
    )
    stamp_timestamp: str = setting(
        "off",
        "Write the time of arrival into messages, as timestamp_in_ms and timestamp; keep "
        "existing values, or overwrite them.",
        choices=("off", "keep", "overwrite"),
    )
    stamp_node: str = setting(
        "off",
        "Write the name of this node into messages on arrival, as x-routed-by.",
        choices=("off", "keep", "overwrite"),
    )
    stamp_sent_time: bool = setting(
        False, "Write the time into messages as they are delivered, as x-opt-rabbitmq-sent-time."
    )

    management_socket: str = setting(
        "",
        "Unix socket for the commands of operators; empty: `management.sock` in the data "
        "directory, and none with `memory`; `none`: none.",
    )
    console: bool = setting(
        False,
        "Run the console as well: RabbitMQ's HTTP API, metrics for Prometheus, and pages; needs "
        "`headrace[console]`.",
    )
    console_host: str = setting(
        "127.0.0.1", "Addresses of the console, separated by commas.", many=True
    )
    console_port: int = setting(
        15672, "Port of the console's API and pages; 0 picks a free one.", low=0, high=65535
    )
    metrics_port: int | None = setting(
        15692,
        "Port of the console's metrics; 0 picks a free one; none: no metrics.",
        low=0,
        high=65535,
    )
    console_names: str = setting(
        "",
        "Host names that requests to the console may be for, beside addresses, `localhost` and "
        "this machine's name; separated by commas.",
        many=True,
    )
    console_url: str = setting(
        "",
        "Address of the console for browsers behind a proxy, such as `https://mq.example`; empty: "
        "that of their requests. Cookies, the check of their origin and the login by OAuth use it.",
    )
    console_tls: bool = setting(False, "Serve the console over TLS, with tls_cert and tls_key.")
    console_plain_ok: bool = setting(
        False, "Serve the console without TLS on other addresses than loopback."
    )
    console_history: str = setting(
        "",
        "File of the console's history, of 256 MiB at most; empty: `console/history.sqlite` "
        "beside the management socket; `none`: no file, so only the last hour.",
    )
    console_pipelines: str = setting(
        "",
        "Where the console finds pipelines and Spark's queries, separated by commas: directories "
        "that pipelines run in, their state directories, and files that a QueryListener writes.",
        many=True,
    )
    console_oauth_client_id: str = setting(
        "", "The console's client id at an authorization server; empty: no login by OAuth 2 there."
    )
    console_oauth_authorization_endpoint: str = setting(
        "", "Authorization endpoint, at which browsers log in."
    )
    console_oauth_token_endpoint: str = setting(
        "", "Token endpoint, at which the console exchanges a code for a token."
    )
    console_oauth_scopes: str = setting(
        "openid", "Scopes that the console asks for, separated by spaces."
    )
    rabbitmq_version: str = setting(
        "4.1.0",
        "Version of RabbitMQ that the console reports; clients choose their requests by it.",
    )
    log_level: str = setting("info", "What to log.", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "text", "Log lines as text, or as one JSON object per line.", choices=("text", "json")
    )
    log_file: Path | None = setting(None, "File to log to; none: standard error.")


# Settings that `headrace reload` does not apply, and why; see headrace.server.reload.
NEEDS_RESTART = {
    "relays": "the processes have the clients' sockets",
    "data": "the directory is in use",
    "memory": "existing data would have to move",
    "cluster": "the broker joins at its start",
    "cluster_name": "the broker joins at its start",
    "cluster_address": "the broker joins at its start",
    "cluster_lease_s": "the broker joins at its start",
    "cluster_lag_max": "the broker joins at its start",
    "cluster_standbys": "the broker joins at its start",
    "frame_max": "all connections share a buffer of that size",
    "read_size": "all connections share a buffer of that size",
    "segment_size": "files of the journal are used again",
    "stream_store": "streams read from the one that they began with",
    "stream_cache_size": "streams read from the one that they began with",
    "specification_qos": "clients learned it when they connected",
    "default_user": "used only when the data directory is created",
    "default_pass": "used only when the data directory is created",
    "default_vhost": "used only when the data directory is created",
    "qmf": "the exchanges come with their virtual host",
    "event_vhost": "the exchange restores its bindings at the start",
    "management_socket": "the answer uses it",
    "console": "the console is a process of its own",
    "console_host": "the console is a process of its own",
    "console_port": "the console is a process of its own",
    "metrics_port": "the console is a process of its own",
    "console_url": "the console is a process of its own",
    "console_names": "the console is a process of its own",
    "console_tls": "the console is a process of its own",
    "console_plain_ok": "the console is a process of its own",
    "console_history": "the console is a process of its own",
    "console_pipelines": "the console is a process of its own",
    "console_oauth_client_id": "the console is a process of its own",
    "console_oauth_authorization_endpoint": "the console is a process of its own",
    "console_oauth_token_endpoint": "the console is a process of its own",
    "console_oauth_scopes": "the console is a process of its own",
    "rabbitmq_version": "the console is a process of its own",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table."""

    name: str
    kind: type  # str, int, float, bool or Path.
    optional: bool  # None is a value.
    default: object
    help: str
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    secret: bool
    many: bool  # Several values, separated by commas, or a list.

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    def read(self, value: object, source: str) -> object:
        """Return the value of the right type and within bounds.

        Raises:
            SettingError: it is not.
        """
        if self.optional and (value is None or value == ""):
            return None
        if self.many and isinstance(value, list | tuple):
            value = ",".join([str(self._typed(one, source)) for one in value])
        found = self._typed(value, source)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            if self.low is not None and found < self.low:
                raise SettingError(self.name, source, f"{found} is less than {self.low:.15g}")
            if self.high is not None and found > self.high:
                raise SettingError(self.name, source, f"{found} is more than {self.high:.15g}")
        if self.choices and found not in self.choices:
            raise SettingError(
                self.name, source, f"{found!r} is not one of {', '.join(self.choices)}"
            )
        return found

    def _typed(self, value: object, source: str) -> object:
        shown = "the value" if self.secret else repr(value)
        if self.kind is bool:
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
                return value.lower() in _TRUE
            raise SettingError(self.name, source, f"{shown} must be true or false")
        if self.kind is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, str) and (number := self._whole(value)) is not None:
                return number
            what = "size, e.g. 64MiB" if self.unit == "octets" else "whole number"
            raise SettingError(self.name, source, f"{shown} is not a {what}")
        if self.kind is float:
            try:
                if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                    real = float(value)
                    if math.isfinite(real):
                        return real
            except ValueError:
                pass
            raise SettingError(self.name, source, f"{shown} is not a number")
        if not isinstance(value, str | Path):
            raise SettingError(self.name, source, f"{shown} is not a string")
        return Path(value) if self.kind is Path else str(value)

    def _whole(self, text: str) -> int | None:
        if self.unit == "octets":
            return size_of(text)
        found = _SIZE.fullmatch(text.strip())
        return int(found[1]) if found is not None and not found[2] else None


def _table() -> tuple[Setting, ...]:
    hints = typing.get_type_hints(Settings)
    rows = []
    for field in dataclasses.fields(Settings):
        hint = hints[field.name]
        optional = isinstance(hint, types.UnionType)
        kind = next(k for k in typing.get_args(hint) if k is not type(None)) if optional else hint
        rows.append(
            Setting(
                name=field.name,
                kind=kind,
                optional=optional,
                default=field.default,
                **field.metadata,
            )
        )
    return tuple(rows)


SETTINGS: tuple[Setting, ...] = _table()
_BY_NAME = {row.name: row for row in SETTINGS}


def load(
    flags: Mapping[str, object], environment: Mapping[str, str], config: Path | None = None
) -> Settings:
    """Return the settings of the three sources; None in `flags` is no value.

    Raises:
        SettingError: one of them cannot be used.
    """
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    values: dict[str, Any] = {}  # Each of the type of its field.
    if config is not None:
        for name, value in _read_toml(config).items():
            row = _BY_NAME.get(name)
            if row is None:
                raise SettingError(name, str(config), f"there is no such setting{closest(name)}")
            values[name] = row.read(value, str(config))
    for row in SETTINGS:
        text = environment.get(row.variable)
        if text is not None and not is_service_link(row.variable, text):
            values[row.name] = row.read(text, row.variable)
        given = flags.get(row.name)
        if given is not None and given != ():
            values[row.name] = row.read(given, row.flag)
            if row.name == "cluster" and has_password(str(given)):
                raise SettingError(
                    row.name,
                    row.flag,
                    "every user of this machine can see the password: leave it to the variable "
                    "HEADRACE_CLUSTER, to the file of settings, or to ~/.pgpass",
                )
    settings = Settings(**values)
    check_together(settings)
    return settings


def has_password(url: str) -> bool:
    """Return True if a URL or a connection string of PostgreSQL has a password in it."""
    return re.search(r"//[^@]*:[^@]*@|password\s*=", url) is not None


def closest(name: str, names: Iterable[str] | None = None) -> str:
    """Return a question that names the setting that was probably meant; "" when none is close."""
    known = [row.name for row in SETTINGS] if names is None else names
    close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def strange_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that begins as those of settings, and is none."""
    said = []
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name in _BY_NAME and is_service_link(variable, environment[variable]):
            service = variable.removesuffix("_PORT").lower().replace("_", "-")
            said.append(
                f"the variable {variable} is ignored: {environment[variable]} is what Kubernetes "
                f"says of a Service named {service!r}, not a port; `enableServiceLinks: false` in "
                "the pod's specification leaves it out"
            )
            continue
        known = name in _BY_NAME or name in OTHER_VARIABLES
        if known or name == variable.lower() or name.startswith(FOREIGN_VARIABLES):
            continue
        meant = closest(name, [*_BY_NAME, *OTHER_VARIABLES])
        if meant:
            meant = f"; did you mean {ENVIRONMENT_PREFIX}{meant.split()[-1].upper()}"
        said.append(f"the variable {variable} is not a setting and is ignored{meant}")
    return said


def is_service_link(variable: str, text: str) -> bool:
    """Return True for a variable of Kubernetes: it has an address for a port."""
    return variable.endswith("_PORT") and _LINK.match(text) is not None


def misspelt(variable: str, environment: Mapping[str, str]) -> list[str]:
    """Return unused variables with a name close to this one."""
    known = {*(row.variable for row in SETTINGS), *map(_variable, OTHER_VARIABLES)}
    strange = [
        one
        for one in environment
        if one.startswith(ENVIRONMENT_PREFIX[:4])
        and one not in known
        and not one.startswith(tuple(map(_variable, FOREIGN_VARIABLES)))
    ]
    return sorted(difflib.get_close_matches(variable, strange, cutoff=MISSPELT))


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def check_together(settings: Settings) -> None:
    """Raise SettingError when settings that are right alone are wrong together."""
    if not settings.host.replace(",", " ").strip():
        raise SettingError("host", "default", "there is no address in it")
    if settings.proxy_protocol_from:
        from headrace.server.config.networks import networks_of  # No help of a command needs it.

        try:
            networks_of(settings.proxy_protocol_from)
        except ValueError as error:
            raise SettingError("proxy_protocol_from", "default", str(error)) from None
    if settings.tls_port is not None:
        for name in ("tls_cert", "tls_key"):
            if getattr(settings, name) is None:
                raise SettingError(name, "default", "tls_port needs it")
    if settings.cluster and settings.memory:
        raise SettingError("memory", "default", "a cluster stores its data: leave memory out")
    if settings.cluster_address and not re.fullmatch(r".+:\d{1,5}", settings.cluster_address):
        raise SettingError("cluster_address", "default", "it is not host:port")
    if settings.console and settings.console_tls:
        for name in ("tls_cert", "tls_key"):
            if getattr(settings, name) is None:
                raise SettingError(name, "default", "console_tls needs it")
    socketless = settings.management_socket == "none" or (
        settings.memory and not settings.management_socket
    )
    if settings.console and socketless:
        raise SettingError("management_socket", "default", "the console needs it: set it to a path")
    if settings.tls_crl is not None and settings.tls_ca is None:
        raise SettingError("tls_crl", "default", "it is of no use without tls_ca")


def _read_toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingError("config", str(path), error.strerror or str(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("config", str(path), f"not TOML: {error}") from None
