# SPDX-License-Identifier: Apache-2.0
"""Certificates and tokens for tests of logins."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.gateway.security.passwords import make_account
from headrace.store.catalog.users import UserDirectory

if TYPE_CHECKING:
    from headrace.model.policy.accounts import Permission

RESOURCE = "headrace"


class Certificates:
    """An authority, and what it signed, in files."""

    def __init__(
        self,
        home: Path,
        parent: Certificates | None = None,
        called: str = "",
        *,
        strict: bool = True,
    ) -> None:
        """With a parent, an authority that another has signed.

        Without `strict` the certificates lack what RFC 5280 wants beyond names, keys and basic
        constraints, as those of older authorities do.
        """
        self.home = home
        self._strict = strict
        self._key = ec.generate_private_key(ec.SECP256R1())
        called = called or ("Test authority" if parent is None else "Lesser authority")
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
        self._now = dt.datetime.now(dt.UTC)
        self._signer = self if parent is None else parent
        self.renew()
        self.revoke()

    def renew(self) -> None:
        """Another certificate of the same name and key."""
        built = self._signer._build(self.name, self._key, ca=True)
        self.certificate = built.sign(self._signer._key, hashes.SHA256())
        self.ca = self._write("ca.pem", self.certificate)

    def _build(self, name: x509.Name, key: Any, *, ca: bool) -> x509.CertificateBuilder:
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - dt.timedelta(hours=1))
            .not_valid_after(self._now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not self._strict:
            return built
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        usage = _usage("key_cert_sign", "crl_sign") if ca else _usage("digital_signature")
        return (
            built.add_extension(own, critical=False)
            .add_extension(self._key_identifier(), critical=False)
            .add_extension(usage, critical=True)
        )

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())

    def _write(self, name: str, *things: Any) -> Path:
        path = self.home / name
        path.write_bytes(b"".join(one.public_bytes(serialization.Encoding.PEM) for one in things))
        return path

    def issue(self, name: str, *dns: str) -> tuple[Path, Path, x509.Certificate]:
        """Certificate and key, in files, of a common name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        built = self._build(subject, key, ca=False)
        if dns:
            names = x509.SubjectAlternativeName([x509.DNSName(one) for one in dns])
            built = built.add_extension(names, critical=False)
        certificate = built.sign(self._key, hashes.SHA256())
        stem = name.replace("*", "any")
        key_path = self.home / f"{stem}.key"
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return self._write(f"{stem}.pem", certificate), key_path, certificate

    def revoke(self, *certificates: x509.Certificate) -> Path:
        """The list of what is revoked, written anew."""
        built = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(self._now - dt.timedelta(hours=1))
            .next_update(self._now + dt.timedelta(days=1))
            .add_extension(x509.CRLNumber(x509.random_serial_number()), critical=False)
            .add_extension(self._key_identifier(), critical=False)
        )
        for each in certificates:
            revoked = (
                x509.RevokedCertificateBuilder()
                .serial_number(each.serial_number)
                .revocation_date(self._now - dt.timedelta(minutes=1))
            )
            built = built.add_revoked_certificate(revoked.build())
        self.crl = self._write("crl.pem", built.sign(self._key, hashes.SHA256()))
        return self.crl


def _usage(*allowed: str) -> x509.KeyUsage:
    uses = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{use: use in allowed for use in uses})


class Issuer:
    """An issuer of tokens."""

    def __init__(self, kid: str = "one") -> None:
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1())

    def jwk(self, **more: Any) -> dict[str, Any]:
        """The public key, as a JSON Web Key."""
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return {**public, "kid": self.kid, "use": "sig", **more}

    def write(self, path: Path, *others: Issuer) -> Path:
        """The set of keys, in a file."""
        path.write_text(json.dumps({"keys": [one.jwk() for one in (self, *others)]}))
        return path

    def token(
        self,
        *scopes: str,
        name: str = "tess",
        lives_s: float = 600,
        headers: dict[str, Any] | None = None,
        algorithm: str = "ES256",
        key: Any = None,
        **claims: Any,
    ) -> str:
        """A token."""
        body: dict[str, Any] = {
            "sub": name,
            "aud": [RESOURCE],
            "exp": math.ceil(time.time() + lives_s),  # At least as long as asked for.
            "scope": " ".join(f"{RESOURCE}.{scope}" for scope in scopes),
            **claims,
        }
        body = {key_: value for key_, value in body.items() if value is not None}
        made: str = jwt.encode(
            body,
            None if algorithm == "none" else key or self.key,  # type: ignore[arg-type]
            algorithm,
            headers={"kid": self.kid, **(headers or {})},
        )
        return made


def administer(data: Path, *users: tuple[str, str, Permission]) -> None:
    """Give a data directory users with passwords and permissions, as the commands would."""
    with contextlib.closing(UserDirectory(data)) as directory:
        known = directory.snapshot().accounts
        for name, password, permission in users:
            if name not in known:
                directory.add_user(make_account(name, password))
            directory.set_permission(name, "/", permission)


EVERYTHING = ("read:*/*", "write:*/*", "configure:*/*")

__all__ = ["EVERYTHING", "RESOURCE", "Certificates", "Issuer", "administer"]
