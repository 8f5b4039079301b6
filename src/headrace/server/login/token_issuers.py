# SPDX-License-Identifier: Apache-2.0
"""Trusted issuers of bearer tokens, from the settings ``oauth_…`` and from a file of issuers.

The file is TOML. The name of a table is an issuer, as tokens contain it in ``iss``. The table has
the settings that differ for this issuer, without the prefix ``oauth_``; other settings keep their
common values. Without ``jwks``, its keys are found by discovery::

    ["https://login.example/realms/shop"]
    scope_claims = "realm_access.roles"
    scope_aliases = "ops=tag:administrator,configure:*/*"

    ["https://machines.example"]
    jwks = "/etc/headrace/machines.json"
    resource_server_id = "plant"
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import extras
from headrace.server.config.settings import SETTINGS, SettingError, Settings
from headrace.server.login.jwks import make_discovery_loader, make_loader, read_file

if TYPE_CHECKING:
    from headrace.gateway.oauth.keys import Keys
    from headrace.gateway.oauth.tokens import TokenRules, Trust

NO_PREFIX = "none"  # The value of oauth_scope_prefix for scopes without a prefix.
# Algorithms with shared keys, which tokens may use only if oauth_algorithms names them.
SHARED_KEY_ALGORITHMS = ("HS256", "HS384", "HS512")
ISSUERS_MAX = 64  # Issuers in the file.
ISSUERS_SIZE_MAX = 256 << 10  # Bytes of the file.
PREFIX = "oauth_"
ISSUER_SETTINGS = {
    row.name.removeprefix(PREFIX): row
    for row in SETTINGS
    if row.name.startswith(PREFIX) and row.name not in ("oauth_issuer", "oauth_issuers")
}

#: The source of an issuer's keys: the file or address of the keys, or "" for discovery; the issuer
#: for discovery, or ""; the file of authorities for its host.
KeySource = tuple[str, str, Path | None]


class TrustError(Exception):
    """A setting of tokens is unusable; the text names it and the reason."""


class KeyRing:
    """The keys of all issuers by source; a reload of the settings keeps them."""

    def __init__(self) -> None:
        self._keys: dict[KeySource, Keys] = {}

    def get(self, source: KeySource, load: Callable[[], Awaitable[bytes]]) -> Keys:
        """Return the keys of a source; for a new source, ``load`` reads them at their first use."""
        from headrace.gateway.oauth.keys import Keys

        return self._keys.get(source) or Keys(load)

    def keep(self, sources: dict[KeySource, tuple[Keys, float]]) -> None:
        """Keep the keys of these sources only, and read them again at their next use.

        ``sources`` has, for each source, its keys and the seconds for which a set of keys is fresh.
        """
        self._keys = {source: keys for source, (keys, _) in sources.items()}
        for keys, fresh_s in sources.values():
            keys.renew(fresh_s)


class TrustedIssuers:
    """The trusted issuers that settings name, which :meth:`begin` puts into effect."""

    def __init__(self, settings: Settings, ring: KeyRing) -> None:
        """Read the settings and the files that they name.

        Raises:
            TrustError: a setting or a file cannot be used, or the library for tokens is missing.
        """
        self.trusts: list[Trust] = []  # Without any, all tokens are refused.
        self._ring = ring
        self._keys_in_use: dict[KeySource, tuple[Keys, float]] = {}
        for issuer_settings in settings_by_issuer(settings):
            self.trusts.append(self._trust(issuer_settings))

    def _trust(self, settings: Settings) -> Trust:
        """Return the keys and the rules of one issuer."""
        try:
            from headrace.gateway.oauth.tokens import Trust
        except ImportError as error:
            raise TrustError(
                f"setting {issuer_setting(settings)}: {extras.describe_missing(error) or error}"
            ) from None
        rules = read_token_rules(settings)
        source, load = find_key_source(settings)
        keys = self._ring.get(source, load)
        self._keys_in_use[source] = (keys, settings.oauth_keys_s)
        return Trust(keys, rules)

    def begin(self) -> None:
        """Put these issuers into effect."""
        self._ring.keep(self._keys_in_use)


def settings_by_issuer(settings: Settings) -> list[Settings]:
    """Return the settings of each trusted issuer; that of oauth_issuer is the first.

    Raises:
        TrustError: the file of issuers cannot be used.
    """
    issuers = [settings] if settings.oauth_jwks or settings.oauth_issuer else []
    if settings.oauth_issuers is None:
        return issuers
    prefix = f"setting oauth_issuers: {settings.oauth_issuers}"
    try:
        tables = tomllib.loads(read_file(settings.oauth_issuers, ISSUERS_SIZE_MAX).decode())
    except (OSError, ValueError) as error:  # Broken TOML or UTF-8 is a ValueError.
        raise TrustError(f"{prefix}: {getattr(error, 'strerror', None) or error}") from None
    if not 0 < len(tables) <= ISSUERS_MAX:
        raise TrustError(f"{prefix}: it names {len(tables)} issuers, not 1 to {ISSUERS_MAX}")
    for issuer, table in tables.items():
        if not isinstance(table, dict):
            raise TrustError(f"{prefix}: {issuer!r} is not a table")
        if issuer == settings.oauth_issuer or not issuer:
            raise TrustError(f"{prefix}: {issuer!r} is the issuer of oauth_issuer, or none")
        changed: dict[str, Any] = {  # The values have the types of their fields.
            "oauth_issuer": issuer,
            "oauth_jwks": "",
            "oauth_issuers": None,
        }
        for name, value in table.items():
            row = ISSUER_SETTINGS.get(name)
            if row is None:
                raise TrustError(f"{prefix}: {issuer!r}: there is no {name!r}")
            try:
                changed[row.name] = row.read(value, issuer)
            except SettingError as error:
                raise TrustError(f"{prefix}: {issuer!r}: {name}: {error.reason}") from None
        issuers.append(dataclasses.replace(settings, **changed))
    return issuers


def issuer_setting(settings: Settings) -> str:
    """Return the name of the setting that enables tokens, for the text of an error."""
    return "oauth_jwks" if settings.oauth_jwks else "oauth_issuer"


def issuer_suffix(settings: Settings) -> str:
    """Return the issuer for the text of an error; "" for keys without an issuer."""
    return f" (issuer {settings.oauth_issuer!r})" if settings.oauth_issuer else ""


def find_key_source(settings: Settings) -> tuple[KeySource, Callable[[], Awaitable[bytes]]]:
    """Return the source of an issuer's keys, and the function that reads them.

    Raises:
        TrustError: the address is malformed, or the file has no valid set of keys.
    """
    from headrace.gateway.oauth.keys import read_set

    jwks, issuer, ca = settings.oauth_jwks, settings.oauth_issuer, settings.oauth_jwks_ca
    try:
        if not jwks:
            return ("", issuer, ca), make_discovery_loader(issuer, ca)
        if "://" not in jwks:
            read_set(read_file(Path(jwks)))  # Raises for a malformed file now, not at a login.
        return (jwks, "", ca), make_loader(jwks, ca)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
    except ValueError as error:
        text = str(error)
    raise TrustError(f"setting {issuer_setting(settings)}{issuer_suffix(settings)}: {text}")


def read_token_rules(settings: Settings) -> TokenRules:
    """Return the rules for an issuer's tokens, from its settings.

    Raises:
        TrustError: a setting cannot be used.
    """
    from headrace.gateway.oauth.scopes import ScopeError, check_aliases, read_aliases
    from headrace.gateway.oauth.tokens import ALGORITHMS, TokenRules

    suffix = issuer_suffix(settings)
    resources = tuple(settings.oauth_resource_server_id.split())
    if not resources:
        raise TrustError(
            f"setting {issuer_setting(settings)}{suffix} needs oauth_resource_server_id"
        )
    if not settings.oauth_verify_audience and not settings.oauth_issuer:
        raise TrustError("setting oauth_verify_audience: without it, oauth_issuer must be set")
    algorithms = tuple(settings.oauth_algorithms.split())
    if not algorithms or "none" in (algorithm.lower() for algorithm in algorithms):
        raise TrustError(f"setting oauth_algorithms{suffix}: tokens must be signed")
    unknown = sorted({*algorithms} - {*ALGORITHMS.split(), *SHARED_KEY_ALGORITHMS})
    if unknown:
        raise TrustError(
            f"setting oauth_algorithms{suffix}: unknown algorithms {', '.join(unknown)}"
        )
    prefix = settings.oauth_scope_prefix
    try:
        aliases = read_aliases(settings.oauth_scope_aliases)
        for resource in resources:
            check_aliases(aliases, "" if prefix == NO_PREFIX else prefix or f"{resource}.")
    except ScopeError as error:
        raise TrustError(f"setting oauth_scope_aliases{suffix}: {error}") from None
    return TokenRules(
        resource_server_ids=resources,
        verify_audience=settings.oauth_verify_audience,
        scope_prefix="" if prefix == NO_PREFIX else prefix or None,
        scope_claims=tuple(settings.oauth_scope_claims.split()),
        aliases=aliases,
        issuer=settings.oauth_issuer,
        algorithms=algorithms,
        username_claims=tuple(settings.oauth_username_claims.split()),
        leeway_s=settings.oauth_leeway_s,
    )
