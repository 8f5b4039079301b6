# SPDX-License-Identifier: Apache-2.0
"""Certificates that verification refuses: what is said of them.

Since Python 3.13 a default context of TLS sets VERIFY_X509_STRICT: OpenSSL then also refuses
certificates that lack extensions which RFC 5280 demands. OpenSSL says what is wrong; the text here
adds what to do.
"""

from __future__ import annotations

import ssl

# X509_V_ERR of OpenSSL 3, raised by VERIFY_X509_STRICT only, and what the standard demands.
_DEMANDED = {
    80: "only the certificate of an authority may have a path length",
    81: "a path length needs keyCertSign in keyUsage",
    82: "keyCertSign in keyUsage is for authorities only",
    83: "every certificate must name its issuer",
    84: "a certificate without a subject needs subjectAltName",
    85: "every certificate but a root must have the extension authorityKeyIdentifier",
    86: "the certificate of an authority must have the extension subjectKeyIdentifier",
    87: "subjectAltName must not be empty",
    88: "subjectAltName must be critical where there is no subject",
    89: "basicConstraints must be critical in the certificate of an authority",
    90: "authorityKeyIdentifier must not be critical",
    91: "subjectKeyIdentifier must not be critical",
    92: "the certificate of an authority must have the extension keyUsage",
    93: "a certificate with extensions must be of version 3",
    94: "a key of an elliptic curve must name its curve",
}


def said(error: ssl.SSLCertVerificationError) -> str:
    """Say why a certificate is refused, and what to do when it lacks what RFC 5280 demands."""
    text = f"CERTIFICATE_VERIFY_FAILED, {error.verify_message}".rstrip(".")
    demanded = _DEMANDED.get(error.verify_code)
    if demanded is None:
        return text
    return (
        f"{text}: by RFC 5280, which Python checks since 3.13, {demanded}; "
        "the authority must issue the certificate anew"
    )


def explained(error: ssl.SSLCertVerificationError, whose: str) -> ssl.SSLCertVerificationError:
    """Return the same refusal with a text that says whose certificate it is, and what to do."""
    text = f"the certificate of {whose} is refused: {said(error)}"
    other = ssl.SSLCertVerificationError(error.errno, text)
    other.verify_code, other.verify_message = error.verify_code, error.verify_message
    return other


def of(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that caused an error; None if another thing did."""
    cause: BaseException | None = error
    while cause is not None:
        # aiohttp has an error of this class that OpenSSL did not fill.
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code"):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
