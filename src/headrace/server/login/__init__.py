# SPDX-License-Identifier: Apache-2.0
"""Logins and accounts of a running broker.

- `login`: logins, renewed secrets (connection.update-secret), expiring credentials
- `attempts`: counts of logins that succeeded and failed, by protocol and source
- `token_issuers`, `jwks`: issuers of OAuth tokens, and their keys
- `account_changes`: accounts changed by commands and imports
"""
