# SPDX-License-Identifier: Apache-2.0
"""The URLs of the broker for the client, from `uri` or from separate options.

All that a process needs to connect is in one `Secret`: URLs with a blank between them, which no
URL holds. So readers and writers carry it to the executors, and nothing that is shown repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from headrace.client.errors import InvalidUrl
from headrace.client.url import Secret, one_by_one, parse_url
from headrace.columns.options.kinds import OptionError

if TYPE_CHECKING:
    from headrace.columns.options.parse import OptionValues

# Options that a URL may say instead, as a parameter.
_PARAMETERS: Final = {
    "tlsCa": "cacertfile",
    "tlsCert": "certfile",
    "tlsKey": "keyfile",
    "tlsVerify": "verify",
    "tlsServerName": "server_name_indication",
    "saslMechanism": "auth_mechanism",
    "protocolVersion": "version",
}


def broker(given: OptionValues) -> Secret:
    """Return the URLs of the broker, in the order in which they are tried."""
    if "uri" in given:
        each = [url for several in given["uri"] for url in one_by_one(several)]
        return Secret(" ".join(_complete_url(given, url) for url in each))
    if "host" not in given:
        raise OptionError(
            "option 'uri' is missing: the broker's URL, such as amqp://user:password@host:5672/"
            "vhost; or give 'host'"
        )
    scheme = "amqps" if given.get("tls", False) else "amqp"
    hosts = [f"[{host}]" if ":" in host else host for host in given["host"]]
    port = f":{given['port']}" if "port" in given else ""
    return Secret(" ".join(_complete_url(given, f"{scheme}://{host}{port}") for host in hosts))


def urls(where: Secret) -> list[str]:
    """Return the URLs that `broker` joined."""
    return where.split(" ")


def _complete_url(given: OptionValues, url: str) -> str:
    """Return the URL completed by the other options."""
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = parts.netloc.rpartition("@")[2]
    login = parts.netloc[: -len(host) - 1] if "@" in parts.netloc else ""
    if "user" in given or "password" in given:
        login = _login(given, login)
    path = parts.path
    if "vhost" in given:
        if path.strip("/"):
            raise _contradiction("vhost")
        path = "/" + quote(given["vhost"], safe="")
    query = [parts.query] if parts.query else []
    for option, parameter in _PARAMETERS.items():
        if option in given:
            if parameter in parameters:
                raise _contradiction(option)
            query.append(f"{parameter}={quote(_text(given[option]), safe='')}")
    made = f"{parts.scheme}://{login}{'@' if login else ''}{host}{path}"
    made += f"?{'&'.join(query)}" if query else ""
    try:
        settings = parse_url(made)
    except InvalidUrl as error:
        option = "uri" if "uri" in given else "host"
        raise OptionError(f"option {option!r}: {error}") from None
    if settings.host != settings.host.strip() or " " in made:
        raise OptionError("option 'uri': a blank in a URL must be written as %20")
    return made


def _login(given: OptionValues, login: str) -> str:
    user, colon, password = login.partition(":")
    if "user" in given:
        if user:
            raise _contradiction("user")
        user = quote(given["user"], safe="")
    if "password" in given:
        if colon:
            raise _contradiction("password")
        password = quote(given["password"], safe="")
        return f"{user or 'guest'}:{password}"
    return f"{user}{colon}{password}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "verify_peer" if value else "verify_none"
    return str(value)


def _contradiction(option: str) -> OptionError:
    return OptionError(f"option {option!r} contradicts option 'uri', which sets it too")
