# SPDX-License-Identifier: Apache-2.0
"""Conversion of properties and headers between versions, by one neutral set of properties."""
