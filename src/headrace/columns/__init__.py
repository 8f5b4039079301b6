# SPDX-License-Identifier: Apache-2.0
"""Messages of streams and queues as columns of Arrow, for Spark and other engines.

The package parses options, finds the ranges of a read, decodes bodies and builds record batches. It
does not import Spark.
"""
