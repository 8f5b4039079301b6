# SPDX-License-Identifier: Apache-2.0
"""Who asks: logins by password, token and session, and whether a page of ours asks."""
