# SPDX-License-Identifier: Apache-2.0
"""Texts of errors about certificates that verification refuses.

Since Python 3.13 a default TLS context sets VERIFY_X509_STRICT, with which OpenSSL also refuses
certificates that lack extensions required by RFC 5280. OpenSSL names the fault; the text here adds
the remedy.
"""

from __future__ import annotations

import ssl

# The codes X509_V_ERR of OpenSSL 3 that only VERIFY_X509_STRICT raises, and the rules they enforce.
_REQUIREMENTS = {
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


def fault_text(error: ssl.SSLCertVerificationError) -> str:
    """Return the reason of a refusal, with the remedy if the certificate violates RFC 5280."""
    text = f"CERTIFICATE_VERIFY_FAILED, {error.verify_message}".rstrip(".")
    requirement = _REQUIREMENTS.get(error.verify_code)
    if requirement is None:
        return text
    return (
        f"{text}: by RFC 5280, which Python checks since 3.13, {requirement}; "
        "the authority must issue the certificate anew"
    )


def describe_fault(error: ssl.SSLCertVerificationError, owner: str) -> ssl.SSLCertVerificationError:
    """Return the same refusal with a text that names the certificate's owner and the remedy."""
    text = f"the certificate of {owner} is refused: {fault_text(error)}"
    described = ssl.SSLCertVerificationError(error.errno, text)
    described.verify_code, described.verify_message = error.verify_code, error.verify_message
    return described


def find_refusal(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that caused an error; None for another cause."""
    cause: BaseException | None = error
    while cause is not None:
        # aiohttp raises an error of this class without OpenSSL's attributes.
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code"):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
