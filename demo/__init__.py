# SPDX-License-Identifier: Apache-2.0
"""A year of flights through the broker and Spark, and a check of every one of them.

`python -m demo` runs it; docs/guides/demo.md tells what happens.
"""
