# SPDX-License-Identifier: Apache-2.0
"""Logins, issuers of tokens, accounts that change meanwhile."""
