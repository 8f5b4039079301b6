# SPDX-License-Identifier: Apache-2.0
"""OAuth 2: bearer tokens that are JWTs, the keys they are checked with, the scopes they carry."""
