# SPDX-License-Identifier: Apache-2.0
"""Hashes of passwords, and checking a password against one."""

import base64
import binascii
import hashlib
import hmac
import logging
import secrets

import argon2

from headrace.model.policy.accounts import Account, AccountError, ScramKeys
from headrace.protocol import scram

log = logging.getLogger(__name__)

PASSWORD_BYTES_MAX = 4096

# RFC 9106 and OWASP: 19 MiB, two passes; some 25 ms.
_HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# A hash that no password matches, checked for unknown users.
DUMMY_HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$RWMRApVjw57DArp3mQNdgg"
    "$XNAvbm5MpLJYA7Q8S4/qCCU/0TDHnCJiy4EJGiUbOTg"
)
# Hashes in definitions of RabbitMQ: base64 of four bytes of salt and the digest.
FOREIGN = {"rabbit_sha256": "sha256", "rabbit_sha512": "sha512"}
FOREIGN_SALT_SIZE = 4
NO_PASSWORD = "!"  # noqa: S105 - in place of a hash: login with a password is impossible


def hash_password(password: str) -> str:
    """Return the salted hash of a password, to be stored."""
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise AccountError(f"a password may not be longer than {PASSWORD_BYTES_MAX} bytes")
    return _HASHER.hash(password)


def scram_keys(password: str) -> ScramKeys | None:
    """Return the SCRAM keys of a password; None when SASLprep does not allow it."""
    salt = secrets.token_bytes(scram.SALT_SIZE)
    try:
        stored_key, server_key = scram.keys(scram.salt_password(password, salt, scram.ITERATIONS))
    except scram.ScramError:
        return None
    return ScramKeys(scram.ITERATIONS, salt, stored_key, server_key)


def make_account(name: str, password: str, tags: tuple[str, ...] = ()) -> Account:
    """Return an account with a password.

    Raises:
        AccountError: the password is too long.
    """
    return Account(name, hash_password(password), tags, scram_keys(password))


def verify_password(password_hash: str, password: bytes) -> bool:
    """Return True if a password matches a hash."""
    if is_foreign(password_hash):
        verify_password(DUMMY_HASH, password)  # Takes as long as with a matching hash.
        scheme, _, digest = password_hash.partition("$")
        return _verify_foreign(FOREIGN[scheme], digest, password)
    if password_hash == NO_PASSWORD:
        verify_password(DUMMY_HASH, password)  # Takes as long as with a matching hash.
        return False
    try:
        return _HASHER.verify(password_hash, password)
    except argon2.exceptions.VerificationError:
        return False
    except argon2.exceptions.InvalidHash:
        log.error("a user's password hash cannot be read; set the password again")
        return False


def is_foreign(password_hash: str) -> bool:
    """Return True for a hash from RabbitMQ."""
    scheme, dollar, _ = password_hash.partition("$")
    return bool(dollar) and scheme in FOREIGN


def rehash_password(account: Account, password: bytes) -> Account | None:
    """Return the account with a hash of ours of its password, which has been checked.

    None for a password that is not UTF-8: the account keeps its hash.
    """
    try:
        return make_account(account.name, password.decode(), account.tags)
    except UnicodeDecodeError:
        return None


def _verify_foreign(algorithm: str, text: str, password: bytes) -> bool:
    """Check a hash of RabbitMQ; it is fast, so cheap to guess, and best replaced soon."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    salt, digest = raw[:FOREIGN_SALT_SIZE], raw[FOREIGN_SALT_SIZE:]
    return hmac.compare_digest(hashlib.new(algorithm, salt + password).digest(), digest)
