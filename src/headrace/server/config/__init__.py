# SPDX-License-Identifier: Apache-2.0
"""Settings, their page, identity, the process and its log."""
