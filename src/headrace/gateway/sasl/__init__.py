# SPDX-License-Identifier: Apache-2.0
"""SASL: authentication of clients. A mechanism is a module; `mechanism` has the interface."""
