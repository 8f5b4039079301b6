# SPDX-License-Identifier: Apache-2.0
"""Commands that run, watch and back up a broker."""
