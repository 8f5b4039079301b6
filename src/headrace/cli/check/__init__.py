# SPDX-License-Identifier: Apache-2.0
"""Commands that prove a broker."""
