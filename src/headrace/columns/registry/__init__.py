# SPDX-License-Identifier: Apache-2.0
"""Schemas of writers, from a schema registry and its cache in files."""
