# SPDX-License-Identifier: Apache-2.0
"""Errors of starting a broker."""


class StartError(Exception):
    """The broker cannot start; the text says why in one sentence."""
