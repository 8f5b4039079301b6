# SPDX-License-Identifier: Apache-2.0
"""What keeps a broker from starting."""


class StartError(Exception):
    """The broker cannot start; the text says why in one sentence."""
