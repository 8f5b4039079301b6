# SPDX-License-Identifier: Apache-2.0
"""Pages that log users in and out: with a password, or at an OAuth 2 authorization server."""
