# SPDX-License-Identifier: Apache-2.0
"""SASL: how clients prove who they are. A mechanism is a module; `mechanism` says what one is."""
