# SPDX-License-Identifier: Apache-2.0
"""Passwords as RabbitMQ hashes them."""

import base64
import hashlib


def foreign_hash(password: str, algorithm: str = "sha256") -> str:
    """As RabbitMQ hashes a password."""
    salt = b"\x90\x8d\xc6\x0a"
    return base64.b64encode(
        salt + hashlib.new(algorithm, salt + password.encode()).digest()
    ).decode()
