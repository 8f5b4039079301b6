# SPDX-License-Identifier: Apache-2.0
"""Commands that inspect a broker."""
