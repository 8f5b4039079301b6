# SPDX-License-Identifier: Apache-2.0
"""The URLs of the broker, from the option `uri` or from separate options such as `host`.

The result is a `Secret` with all that a process needs to connect: complete URLs, separated by
blanks, which a URL cannot contain. Readers and writers carry it to the executors. Its text is never
printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from headrace.client.errors import InvalidUrl
from headrace.client.url import Secret, one_by_one, parse_url
from headrace.columns.options.kinds import OptionError

if TYPE_CHECKING:
    from headrace.columns.options.parse import OptionValues

# The parameter of a URL that sets the same as an option.
_PARAMETERS: Final = {
    "tlsCa": "cacertfile",
    "tlsCert": "certfile",
    "tlsKey": "keyfile",
    "tlsVerify": "verify",
    "tlsServerName": "server_name_indication",
    "saslMechanism": "auth_mechanism",
    "protocolVersion": "version",
}


def join_urls(values: OptionValues) -> Secret:
    """Return the URLs of the broker, in the order in which they are tried."""
    if "uri" in values:
        urls = [url for url_list in values["uri"] for url in one_by_one(url_list)]
        return Secret(" ".join(_complete_url(values, url) for url in urls))
    if "host" not in values:
        raise OptionError(
            "option 'uri' is missing: the broker's URL, such as amqp://user:password@host:5672/"
            "vhost; or give 'host'"
        )
    scheme = "amqps" if values.get("tls", False) else "amqp"
    hosts = [f"[{host}]" if ":" in host else host for host in values["host"]]
    port = f":{values['port']}" if "port" in values else ""
    return Secret(" ".join(_complete_url(values, f"{scheme}://{host}{port}") for host in hosts))


def split_urls(joined_urls: Secret) -> list[str]:
    """Return the URLs that `join_urls` joined."""
    return joined_urls.split(" ")


def _complete_url(values: OptionValues, url: str) -> str:
    """Return the URL with the other options added; raise OptionError if they contradict it."""
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = parts.netloc.rpartition("@")[2]
    login = parts.netloc[: -len(host) - 1] if "@" in parts.netloc else ""
    if "user" in values or "password" in values:
        login = _complete_login(values, login)
    path = parts.path
    if "vhost" in values:
        if path.strip("/"):
            raise _contradiction_error("vhost")
        path = "/" + quote(values["vhost"], safe="")
    query = [parts.query] if parts.query else []
    for option, parameter in _PARAMETERS.items():
        if option in values:
            if parameter in parameters:
                raise _contradiction_error(option)
            query.append(f"{parameter}={quote(_parameter_text(values[option]), safe='')}")
    full_url = f"{parts.scheme}://{login}{'@' if login else ''}{host}{path}"
    full_url += f"?{'&'.join(query)}" if query else ""
    try:
        settings = parse_url(full_url)
    except InvalidUrl as error:
        option = "uri" if "uri" in values else "host"
        raise OptionError(f"option {option!r}: {error}") from None
    if settings.host != settings.host.strip() or " " in full_url:
        raise OptionError("option 'uri': a blank in a URL must be written as %20")
    return full_url


def _complete_login(values: OptionValues, login: str) -> str:
    user, colon, password = login.partition(":")
    if "user" in values:
        if user:
            raise _contradiction_error("user")
        user = quote(values["user"], safe="")
    if "password" in values:
        if colon:
            raise _contradiction_error("password")
        password = quote(values["password"], safe="")
        return f"{user or 'guest'}:{password}"
    return f"{user}{colon}{password}"


def _parameter_text(value: object) -> str:
    """Return the value of an option as a URL has it; `tlsVerify` is the only boolean."""
    if isinstance(value, bool):
        return "verify_peer" if value else "verify_none"
    return str(value)


def _contradiction_error(option: str) -> OptionError:
    return OptionError(f"option {option!r} contradicts option 'uri', which sets it too")
