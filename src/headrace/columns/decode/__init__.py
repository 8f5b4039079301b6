# SPDX-License-Identifier: Apache-2.0
"""Decoders of message bodies to Arrow arrays, one module for each format."""
