# SPDX-License-Identifier: Apache-2.0
"""Every setting of the broker, declared once.

A field of `Settings` is a flag of ``headrace serve`` (``--frame-max``), an environment variable
(``HEADRACE_FRAME_MAX``), a key of the TOML file given by ``--config`` (``frame_max``), and a row
of ``docs/reference/settings.md``. A flag overrides a variable, a variable the file, and the
file the default.
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

from headrace.model.arguments.memory_estimate import DEFAULT_BYTES_MAX

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

ENVIRONMENT_PREFIX = "HEADRACE_"
MISSPELT = 0.85  # The least similarity, 0 to 1, of a name and its misspelling.
CONFIG_VARIABLE = "HEADRACE_CONFIG"
# Variables of commands, builds and tests that are not settings.
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


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as 64MiB; None if the text is not a size."""
    match = _SIZE.fullmatch(text.strip())
    factor = None if match is None else _UNITS.get(match[2].lower())
    return None if match is None or factor is None else int(match[1]) * factor


class StartError(Exception):
    """The broker cannot start; the text is the reason, in one sentence."""


class SettingError(ValueError):
    """A setting that cannot be used; the text has its name, its source and the reason."""

    def __init__(self, name: str, source: str, reason: str) -> None:
        super().__init__(f"setting {name} (from {source}): {reason}")
        self.name = name
        self.source = source
        self.reason = reason


def setting(
    default: object,
    help_text: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    many: bool = False,
    former: str = "",
) -> Any:
    """Declare one setting, as a field of `Settings`.

    The result is typed as Any, so that type checkers accept it for a field of any type. ``former``
    is the name of the setting in earlier versions.
    """
    metadata = {"help": help_text, "unit": unit, "low": low, "high": high, "choices": choices}
    metadata |= {"many": many, "former": former, "secret": secret}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a broker, merged from defaults, file, environment and flags."""

    host: str = setting(
        "127.0.0.1",
        "Addresses to listen on, separated by commas; 0.0.0.0 for every interface, :: for every "
        "interface with IPv6 as well.",
        many=True,
    )
    port: int = setting(5672, "Port for AMQP; 0: a free port.", low=0, high=65535)
    tls_port: int | None = setting(
        None, "Port for AMQP over TLS; 0: a free port; none: no TLS.", low=0, high=65535
    )
    tls_cert: Path | None = setting(None, "Certificate chain of the broker, PEM.")
    tls_key: Path | None = setting(None, "Private key of the certificate, PEM.")
    tls_ca: Path | None = setting(
        None, "Certificate authorities of clients, PEM; if set, clients must present a certificate."
    )
    tls_server_names: str = setting(
        "",
        "Further certificates by server name (SNI): `name=chain.pem,key.pem`, separated by "
        "spaces; `*.example.org` stands for all names with one more label.",
    )
    tls_crl: Path | None = setting(
        None,
        "Revocation lists for clients' certificates, PEM: one list of every authority in tls_ca.",
    )
    certificate_expiry_closes: bool = setting(
        False, "Close a connection when its client's certificate expires."
    )
    relays: int = setting(
        0,
        "Number of relay processes, which take over clients' sockets and TLS; 0: the broker "
        "serves them itself.",
        low=0,
        high=64,
    )
    proxy_protocol_from: str = setting(
        "",
        "Addresses and networks of load balancers, separated by commas, whose connections "
        "must begin with a header of the PROXY protocol, version 1 or 2.",
        many=True,
    )
    data: Path = setting(Path("headrace-data"), "Directory for messages and definitions.")
    cluster: str = setting(
        "",
        "Replicated database that the brokers of a cluster share: "
        "`postgresql://user@host1,host2/database`; empty: no cluster. Needs "
        "`headrace[postgres]`.",
        secret=True,
    )
    cluster_name: str = setting(
        "", "Name of this broker in its cluster; empty: the name of the machine."
    )
    cluster_address: str = setting(
        "",
        "Address `host:port` of this broker for the other brokers and their clients; empty: "
        "host and port.",
    )
    cluster_lease_s: float = setting(
        6.0,
        "Time without a heartbeat after which other brokers take over this broker's virtual hosts.",
        unit="seconds",
        low=2,
        high=60,
    )
    cluster_lag_max: int = setting(
        64 * MIB,
        "Data of one virtual host that may wait for replication; beyond it publishers wait.",
        unit="bytes",
        low=1 * MIB,
        high=1 << 40,
    )
    cluster_size_max: int = setting(
        0,
        "Size of the cluster's database above which publishers wait; 0: no limit.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
    cluster_standbys: bool = setting(
        True,
        "Refuse a database whose commits do not wait for a standby; if false, the database's "
        "storage must be replicated.",
    )
    memory: bool = setting(False, "Keep all data in memory; nothing survives the process.")

    frame_max: int = setting(
        131072,
        "Largest frame that the broker proposes to clients.",
        unit="bytes",
        low=4096,
        high=16 * MIB,
    )
    channel_max: int = setting(
        2047, "Maximum number of channels of a connection.", low=1, high=65535
    )
    heartbeat_s: int = setting(
        60,
        "Heartbeat interval that the broker proposes to clients; 0: no heartbeats.",
        unit="seconds",
        low=0,
        high=65535,
    )
    handshake_s: float = setting(
        10.0,
        "Time limit for a client to log in and open a virtual host.",
        unit="seconds",
        low=0.5,
        high=3600,
    )
    body_size_max: int = setting(
        128 * MIB, "Largest message body.", unit="bytes", low=0, high=4 * GIB
    )
    connections_max: int = setting(65536, "Maximum number of connections.", low=1, high=1 << 22)
    read_size: int = setting(
        64 * KIB,
        "Maximum number of bytes read from a socket at once.",
        unit="bytes",
        low=4096,
        high=16 * MIB,
    )
    output_size_max: int = setting(
        1 * MIB,
        "Pending output of a connection above which its consumers get no more deliveries.",
        unit="bytes",
        low=4096,
        high=1 * GIB,
    )

    memory_max: int = setting(
        2 * GIB,
        "Memory for queued messages, at most two fifths of the machine's; above it messages "
        "are paged out to disk, well above it publishers wait.",
        unit="bytes",
        low=1 * MIB,
        high=1 << 50,
    )
    disk_free_min: int = setting(
        128 * MIB,
        "Free disk space below which publishers are blocked.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
    segment_size: int = setting(
        64 * MIB, "Size of one file of the journal.", unit="bytes", low=1 * MIB, high=2 * GIB
    )

    stream_store: str = setting(
        "",
        "Object store for old segments of streams: s3://bucket/prefix, gs://, az:// or "
        "file://; empty: none. Credentials come from the environment.",
    )
    stream_cache_size: int = setting(
        GIB,
        "Disk space for segments that readers fetch from stream_store.",
        unit="bytes",
        low=64 * MIB,
        high=1 << 50,
    )
    staging_size_max: int = setting(
        64 * GIB,
        "Disk space for the files of one virtual host, staged or queued; beyond it senders wait.",
        unit="bytes",
        low=1 * MIB,
        high=1 << 50,
    )
    staging_s: float = setting(
        3600.0,
        "Time for which a partly staged file is kept, so that its sender can resume.",
        unit="seconds",
        low=1,
        high=30 * 86400,
    )
    staged_s: float = setting(
        86400.0,
        "Time for which prepared branches of a staged batch wait for a decision.",
        unit="seconds",
        low=60,
        high=30 * 86400,
    )
    job_messages_max: int = setting(
        1_000_000,
        "Maximum number of messages that one job may move, copy or delete; a job with more is"
        " refused.",
        unit="messages",
        low=1,
        high=100_000_000,
        former="errand_messages_max",
    )

    group_owner_timeout_s: float = setting(
        30.0,
        "Time for which the claim of a group of readers outlives its owner's connection.",
        unit="seconds",
        low=0,
        high=86400,
    )
    group_pin_size_max: int = setting(
        1 * GIB,
        "Data that a stream may keep beyond its limits for groups that pin it.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )

    specification_qos: bool = setting(
        False,
        "Apply basic.qos as the standard defines it (to the channel, or the connection with "
        "global), not as clients expect (to each consumer, or the channel with global).",
    )
    ack_timeout_s: float = setting(
        0.0,
        "Time after which an unacknowledged delivery returns to its queue; 0: no limit. "
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
        "Refuse 0-10 declarations with unknown arguments, as the standard requires.",
    )
    unknown_arguments: str = setting(
        "default",
        "Handling of unknown arguments of queues, if the virtual host has no rule: default "
        "refuses arguments that have an effect in another broker, and ignores the others.",
        choices=("default", "refuse", "log", "ignore"),
    )
    default_queue_type: str = setting(
        "classic",
        "Type of durable queues that are declared without one, if the virtual host has no "
        "default type.",
        choices=("classic", "quorum", "stream"),
    )
    definitions_size_max: int = setting(
        DEFAULT_BYTES_MAX,
        "Memory for queues, exchanges and bindings of a virtual host, with names and "
        "arguments, if the virtual host has no limit max-definitions-size.",
        unit="bytes",
        low=1 << 20,
        high=1 << 50,
    )
    qmf: bool = setting(
        False,
        "Serve Qpid's management tools in every virtual host (QMF version 2: qpid-config, "
        "qpid-stat).",
    )
    session_timeout_s: int = setting(
        3600,
        "Maximum time for which a 0-10 session without a connection is kept.",
        unit="seconds",
        low=0,
        high=1 << 31,
    )
    sessions_detached_max: int = setting(
        1024, "Maximum number of 0-10 sessions kept without a connection.", low=0, high=1 << 20
    )
    product: str = setting("Headrace", "Product name in the server properties.")
    product_version: str = setting("", "Version in the server properties; empty: this version.")
    tls_product: str = setting(
        "", "Product name on the TLS port; empty: the same as on the AMQP port."
    )
    tls_product_version: str = setting(
        "", "Version on the TLS port; empty: the same as on the AMQP port."
    )

    known_hosts: str = setting(
        "",
        "Other hosts of each virtual host, sent to clients of all versions but 0-9-1: "
        "`/=host:port,host:port`, separated by spaces.",
    )
    redirect: str = setting(
        "",
        "Hosts of each virtual host to which clients that do not insist are redirected "
        "(not in 0-9-1), in the form of known_hosts.",
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
        "Time for which the channels of a lost 0-9 connection can be resumed.",
        unit="seconds",
        low=0,
        high=3600,
    )

    guest_loopback_only: bool = setting(True, "Let the user guest log in over loopback only.")
    anonymous_user: str = setting(
        "", "User of clients that log in by SASL ANONYMOUS; empty: refuse them."
    )
    sasl_mechanisms: str = setting(
        "PLAIN AMQPLAIN SCRAM-SHA-256 EXTERNAL OAUTHBEARER XOAUTH2 ANONYMOUS",
        "SASL mechanisms in the order in which they are offered; a mechanism is offered where"
        " it can be used. Entry points of the group `headrace.sasl` add more.",
    )
    plain_needs_tls: bool = setting(
        False,
        "Refuse mechanisms that send a password or token in clear text over a connection "
        "without TLS.",
    )
    plain_on_loopback: bool = setting(
        True, "With plain_needs_tls, allow these mechanisms over loopback without TLS."
    )
    certificate_name: str = setting(
        "common_name",
        "Field of a client's certificate from which EXTERNAL takes the user's name.",
        choices=("common_name", "distinguished_name", "subject_alternative_name"),
    )
    certificate_san: str = setting(
        "dns",
        "Kind of the subject alternative name, if certificate_name is subject_alternative_name.",
        choices=("dns", "email", "ip", "uri"),
    )
    oauth_jwks: str = setting(
        "",
        "Keys of bearer tokens: a file or an https address of a JSON Web Key Set; empty: the "
        "keys of oauth_issuer; without an issuer no tokens are accepted.",
    )
    oauth_jwks_ca: Path | None = setting(
        None, "Certificate authorities for the address oauth_jwks, PEM; none: those of the system."
    )
    oauth_resource_server_id: str = setting(
        "", "Accepted audiences (`aud`) of tokens, separated by spaces."
    )
    oauth_verify_audience: bool = setting(
        True, "Accept only tokens for this broker (`aud`); if false, oauth_issuer must be set."
    )
    oauth_scope_prefix: str = setting(
        "",
        "Prefix of scopes for this broker; empty: the resource server id and a dot; `none`: "
        "nothing.",
    )
    oauth_scope_claims: str = setting(
        "scope authorization.permissions.scopes",
        "Claims with scopes or roles; a dot leads into a nested claim: `scope roles "
        "realm_access.roles`.",
    )
    oauth_scope_aliases: str = setting(
        "",
        "Meaning of foreign scopes or roles: `role=scope,scope`, separated by spaces; "
        "reserved characters are percent-encoded.",
    )
    oauth_issuer: str = setting("", "The issuer that tokens must name in `iss`; empty: any issuer.")
    oauth_issuers: Path | None = setting(None, "TOML file with further issuers and their settings.")
    oauth_algorithms: str = setting(
        "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA",
        "Accepted signature algorithms of tokens, separated by spaces.",
    )
    oauth_username_claims: str = setting(
        "sub client_id",
        "Claims with the user's name, with dots as in oauth_scope_claims; the first one that "
        "a token has is used.",
    )
    oauth_leeway_s: int = setting(
        0,
        "Allowed difference of clocks between the broker and an issuer.",
        unit="seconds",
        low=0,
        high=60,
    )
    oauth_keys_s: float = setting(
        600.0,
        "Time after which keys are read again.",
        unit="seconds",
        low=10,
        high=86400,
    )
    login_failures_free: int = setting(
        10,
        "Failed logins of an address, or of a user, before further logins are delayed.",
        low=0,
        high=1 << 20,
    )
    login_delay_s: float = setting(
        0.1,
        "Delay of a login after these failures, doubled after each further one; 0: no delay.",
        unit="seconds",
        low=0,
        high=60,
    )
    login_delay_max_s: float = setting(
        5.0,
        "Maximum delay of a login; never longer than half of handshake_s.",
        unit="seconds",
        low=0,
        high=60,
    )
    login_forget_s: float = setting(
        300.0,
        "Time after the last failed login after which failures are forgotten.",
        unit="seconds",
        low=1,
        high=86400,
    )
    handshakes_max: int = setting(
        8192, "Maximum number of connections before their login.", low=1, high=1 << 22
    )
    handshakes_per_address_max: int = setting(
        1024,
        "Maximum number of connections of one address before their login.",
        low=1,
        high=1 << 22,
    )
    connection_rate_per_address: float = setting(
        0.0,
        "Maximum number of new connections per second from one address, averaged over ten "
        "seconds; 0: no limit.",
        low=0,
        high=1e6,
    )
    audit_log: Path | None = setting(
        None, "File for the audit log, one JSON object per line; none: no audit log."
    )
    audit_log_size_max: int = setting(
        128 * MIB,
        "Size at which the audit log is renamed and a new file begins; 0: never.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
    audit_log_keep: int = setting(
        16, "Number of renamed audit logs to keep; older ones are removed.", low=1, high=1000
    )
    audit_log_strict: bool = setting(
        False, "Refuse logins and changes while the audit log cannot be written."
    )
    audit_log_sync: bool = setting(False, "Sync the audit log to the disk after each write.")
    backup_directory: Path | None = setting(
        None,
        "Directory for named backups, which administrators make over HTTP; none: no such backups.",
    )
    default_user: str = setting("guest", "User created in a new data directory; empty: none.")
    default_pass: str = setting("guest", "Password of default_user.", secret=True)
    default_vhost: str = setting("/", "Virtual host created in a new data directory.")

    event_vhost: str = setting(
        "", "Virtual host of the exchange amq.rabbitmq.event; empty: the default one."
    )
    stamp_timestamp: str = setting(
        "off",
        "Add the time of arrival to messages, as timestamp_in_ms and timestamp; keep existing"
        " values, or overwrite them.",
        choices=("off", "keep", "overwrite"),
    )
    stamp_node: str = setting(
        "off",
        "Add the name of this node to messages on arrival, as x-routed-by; keep existing "
        "values, or overwrite them.",
        choices=("off", "keep", "overwrite"),
    )
    stamp_sent_time: bool = setting(
        False, "Add the time of delivery to messages, as x-opt-rabbitmq-sent-time."
    )

    management_socket: str = setting(
        "",
        "Unix socket for operators' commands; empty: `management.sock` in the data directory,"
        " or with `memory` no socket; `none`: no socket.",
    )
    console: bool = setting(
        False,
        "Also run the console: RabbitMQ's HTTP API, metrics for Prometheus, and web pages; "
        "needs `headrace[console]`.",
    )
    console_host: str = setting(
        "127.0.0.1", "Addresses of the console, separated by commas.", many=True
    )
    console_port: int = setting(
        15672, "Port of the console's API and pages; 0: a free port.", low=0, high=65535
    )
    metrics_port: int | None = setting(
        15692,
        "Port of the console's metrics; 0: a free port; none: no metrics.",
        low=0,
        high=65535,
    )
    console_names: str = setting(
        "",
        "Host names that requests to the console may have in their Host header, besides "
        "addresses, `localhost` and this machine's name; separated by commas.",
        many=True,
    )
    console_url: str = setting(
        "",
        "Address of the console for browsers behind a proxy, such as `https://mq.example`; "
        "empty: the address of their requests. Cookies, the origin check and the OAuth login "
        "use it.",
    )
    console_tls: bool = setting(False, "Serve the console over TLS, with tls_cert and tls_key.")
    console_plain_ok: bool = setting(
        False, "Serve the console without TLS on addresses other than loopback."
    )
    console_history: str = setting(
        "",
        "File of the console's history, of 256 MiB at most; empty: `console/history.sqlite` "
        "beside the management socket; `none`: no file, so that only the last hour is kept.",
    )
    console_pipelines: str = setting(
        "",
        "Paths of the pipelines and Spark queries that the console shows, separated by "
        "commas: directories in which pipelines run, their state directories, and files that "
        "a QueryListener writes.",
        many=True,
    )
    console_oauth_client_id: str = setting(
        "", "Client id of the console at an authorization server; empty: no login by OAuth 2."
    )
    console_oauth_authorization_endpoint: str = setting(
        "", "Authorization endpoint, at which browsers log in."
    )
    console_oauth_token_endpoint: str = setting(
        "", "Token endpoint, at which the console exchanges a code for a token."
    )
    console_oauth_scopes: str = setting(
        "openid", "Scopes that the console requests, separated by spaces."
    )
    rabbitmq_version: str = setting(
        "4.1.0",
        "Version of RabbitMQ that the console reports; clients choose their requests by this "
        "version.",
    )
    log_level: str = setting(
        "info",
        "Least level of the lines that are logged.",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = setting(
        "text", "Format of log lines: text, or one JSON object per line.", choices=("text", "json")
    )
    log_file: Path | None = setting(None, "File of the log; none: standard error.")


# Settings that `headrace reload` does not apply, and why; see headrace.server.reload.
NEEDS_RESTART = {
    "relays": "the processes own the clients' sockets",
    "data": "the directory is in use",
    "memory": "existing data would have to be moved",
    "cluster": "the broker joins at its start",
    "cluster_name": "the broker joins at its start",
    "cluster_address": "the broker joins at its start",
    "cluster_lease_s": "the broker joins at its start",
    "cluster_standbys": "the broker joins at its start",
    "frame_max": "all connections share a buffer of that size",
    "read_size": "all connections share a buffer of that size",
    "segment_size": "files of the journal are used again",
    "stream_store": "streams use the store with which they began",
    "stream_cache_size": "streams use the store with which they began",
    "specification_qos": "clients received it when they connected",
    "default_user": "used only when the data directory is created",
    "default_pass": "used only when the data directory is created",
    "default_vhost": "used only when the data directory is created",
    "qmf": "the exchanges come with their virtual host",
    "event_vhost": "the exchange's bindings are restored at the start",
    "management_socket": "the answer to a reload uses it",
    "console": "the console is a separate process",
    "console_host": "the console is a separate process",
    "console_port": "the console is a separate process",
    "metrics_port": "the console is a separate process",
    "console_url": "the console is a separate process",
    "console_names": "the console is a separate process",
    "console_tls": "the console is a separate process",
    "console_plain_ok": "the console is a separate process",
    "console_history": "the console is a separate process",
    "console_pipelines": "the console is a separate process",
    "console_oauth_client_id": "the console is a separate process",
    "console_oauth_authorization_endpoint": "the console is a separate process",
    "console_oauth_token_endpoint": "the console is a separate process",
    "console_oauth_scopes": "the console is a separate process",
    "rabbitmq_version": "the console is a separate process",
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
    many: bool  # The value may be several, as a list or separated by commas.
    former: str  # Its name in earlier versions, which every source may still use; empty for none.

    @property
    def names(self) -> tuple[str, ...]:
        """The names that sources may use; if a source has both, the last one counts."""
        return (self.former, self.name) if self.former else (self.name,)

    @property
    def flag(self) -> str:
        """The flag of ``headrace serve``."""
        return flag_name(self.name)

    @property
    def variable(self) -> str:
        """The environment variable."""
        return variable_name(self.name)

    def read(self, value: object, source: str) -> object:
        """Return a source's value as the type of the setting.

        Raises:
            SettingError: the value has the wrong type, or is out of bounds.
        """
        if self.optional and (value is None or value == ""):
            return None
        if self.many and isinstance(value, list | tuple):
            value = ",".join([str(self._convert(item, source)) for item in value])
        typed = self._convert(value, source)
        if isinstance(typed, (int, float)) and not isinstance(typed, bool):
            if self.low is not None and typed < self.low:
                raise SettingError(self.name, source, f"{typed} is less than {self.low:.15g}")
            if self.high is not None and typed > self.high:
                raise SettingError(self.name, source, f"{typed} is more than {self.high:.15g}")
        if self.choices and typed not in self.choices:
            raise SettingError(
                self.name, source, f"{typed!r} is not one of {', '.join(self.choices)}"
            )
        return typed

    def _convert(self, value: object, source: str) -> object:
        """Return a value as the type of the setting; raise SettingError if that is impossible."""
        text = "the value" if self.secret else repr(value)
        if self.kind is bool:
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
                return value.lower() in _TRUE
            raise SettingError(self.name, source, f"{text} must be true or false")
        if self.kind is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, str) and (number := self._parse_integer(value)) is not None:
                return number
            expected = "size, e.g. 64MiB" if self.unit == "bytes" else "whole number"
            raise SettingError(self.name, source, f"{text} is not a {expected}")
        if self.kind is float:
            try:
                if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                    parsed = float(value)
                    if math.isfinite(parsed):
                        return parsed
            except ValueError:
                pass
            raise SettingError(self.name, source, f"{text} is not a number")
        if not isinstance(value, str | Path):
            raise SettingError(self.name, source, f"{text} is not a string")
        return Path(value) if self.kind is Path else str(value)

    def _parse_integer(self, text: str) -> int | None:
        """Return a whole number, or the bytes of a size; None if the text is neither."""
        if self.unit == "bytes":
            return parse_size(text)
        match = _SIZE.fullmatch(text.strip())
        return int(match[1]) if match is not None and not match[2] else None


def _read_fields() -> tuple[Setting, ...]:
    """Return a row for each field of `Settings`."""
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


SETTINGS: tuple[Setting, ...] = _read_fields()
BY_NAME = {name: row for row in SETTINGS for name in row.names}  # Includes the former names.


def load(
    flags: Mapping[str, object], environment: Mapping[str, str], config: Path | None = None
) -> Settings:
    """Return the settings from the three sources; a flag with the value None is not set.

    Raises:
        SettingError: a value cannot be used, or two settings contradict each other.
    """
    values: dict[str, Any] = {}  # Each of the type of its field.
    file, keys = _read_file(environment, config)
    for name in keys:
        if name not in BY_NAME:
            raise SettingError(name, file, f"there is no such setting{suggestion_for(name)}")
    for row in SETTINGS:
        for name in row.names:
            if name in keys:
                values[row.name] = row.read(keys[name], file)
        for variable in map(variable_name, row.names):
            text = environment.get(variable)
            if text is not None and not is_service_link(variable, text):
                values[row.name] = row.read(text, variable)
        for name in row.names:
            value = flags.get(name)
            if value is None or value == ():
                continue
            values[row.name] = row.read(value, flag_name(name))
            if row.name == "cluster" and has_password(str(value)):
                raise SettingError(
                    row.name,
                    row.flag,
                    "every user of this machine can see the password: put it in the variable "
                    "HEADRACE_CLUSTER, in the settings file or in ~/.pgpass",
                )
    settings = Settings(**values)
    check_together(settings)
    return settings


def former_names(
    flags: Mapping[str, object], environment: Mapping[str, str], config: Path | None = None
) -> list[str]:
    """Return a sentence for each source that gives a setting by its former name.

    Raises:
        SettingError: the file cannot be read.
    """
    file, keys = _read_file(environment, config)
    warnings = []
    for row in SETTINGS:
        if not row.former:
            continue
        if row.former in keys:
            warnings.append(f"the key {row.former} of {file} is now {row.name}")
        if variable_name(row.former) in environment:
            warnings.append(f"the variable {variable_name(row.former)} is now {row.variable}")
        if flags.get(row.former) not in (None, ()):
            warnings.append(f"the flag {flag_name(row.former)} is now {row.flag}")
    return [f"{warning}; the former name still works" for warning in warnings]


def has_password(url: str) -> bool:
    """Return True if a URL or a connection string of PostgreSQL has a password in it."""
    return re.search(r"//[^@]*:[^@]*@|password\s*=", url) is not None


def suggestion_for(name: str, names: Iterable[str] | None = None) -> str:
    """Return the end of an error that suggests a similar name; "" if there is none."""
    candidates = [row.name for row in SETTINGS] if names is None else names
    close = difflib.get_close_matches(name.lower().replace("-", "_"), candidates, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that has the prefix of settings but is not one."""
    warnings = []
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name in BY_NAME and is_service_link(variable, environment[variable]):
            service = variable.removesuffix("_PORT").lower().replace("_", "-")
            warnings.append(
                f"the variable {variable} is ignored: {environment[variable]} is the address of a "
                f"Kubernetes Service named {service!r}, not a port; `enableServiceLinks: false` in "
                "the pod's specification removes it"
            )
            continue
        is_known = name in BY_NAME or name in OTHER_VARIABLES
        if is_known or name == variable.lower() or name.startswith(FOREIGN_VARIABLES):
            continue
        suggestion = suggestion_for(name, [*BY_NAME, *OTHER_VARIABLES])
        if suggestion:
            suggestion = f"; did you mean {ENVIRONMENT_PREFIX}{suggestion.split()[-1].upper()}"
        warnings.append(f"the variable {variable} is not a setting and is ignored{suggestion}")
    return warnings


def is_service_link(variable: str, text: str) -> bool:
    """Return True for a variable that Kubernetes sets: its value is an address, not a port."""
    return variable.endswith("_PORT") and _LINK.match(text) is not None


def similar_variables(variable: str, environment: Mapping[str, str]) -> list[str]:
    """Return unknown variables that may be misspellings of this one."""
    variables = {*map(variable_name, BY_NAME), *map(variable_name, OTHER_VARIABLES)}
    unknown = [
        name
        for name in environment
        if name.startswith(ENVIRONMENT_PREFIX[:4])
        and name not in variables
        and not name.startswith(tuple(map(variable_name, FOREIGN_VARIABLES)))
    ]
    return sorted(difflib.get_close_matches(variable, unknown, cutoff=MISSPELT))


def flag_name(name: str) -> str:
    """Return the flag of a setting, such as ``--frame-max``."""
    return "--" + name.replace("_", "-")


def variable_name(name: str) -> str:
    """Return the environment variable of a setting, such as ``HEADRACE_FRAME_MAX``."""
    return ENVIRONMENT_PREFIX + name.upper()


def check_together(settings: Settings) -> None:
    """Raise SettingError if settings that are valid alone contradict each other."""
    if not settings.host.replace(",", " ").strip():
        raise SettingError("host", "default", "it has no address")
    if settings.proxy_protocol_from:
        from headrace.server.config.networks import parse_networks  # No help of a command needs it.

        try:
            parse_networks(settings.proxy_protocol_from)
        except ValueError as error:
            raise SettingError("proxy_protocol_from", "default", str(error)) from None
    if settings.tls_port is not None:
        for name in ("tls_cert", "tls_key"):
            if getattr(settings, name) is None:
                raise SettingError(name, "default", "tls_port needs it")
    if settings.cluster and settings.memory:
        raise SettingError("memory", "default", "a cluster stores its data: do not set memory")
    if settings.cluster_address and not re.fullmatch(r".+:\d{1,5}", settings.cluster_address):
        raise SettingError("cluster_address", "default", "expected host:port")
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
        raise SettingError("tls_crl", "default", "it has no effect without tls_ca")


def _read_file(
    environment: Mapping[str, str], config: Path | None
) -> tuple[str, dict[str, object]]:
    """Return the path of the file of settings and its keys; no keys without a file."""
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    return ("", {}) if config is None else (str(config), _read_toml(config))


def _read_toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingError("config", str(path), error.strerror or str(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("config", str(path), f"not valid TOML: {error}") from None
