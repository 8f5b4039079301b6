# SPDX-License-Identifier: Apache-2.0
"""A demo that sends a year of flights through the broker and Spark, and checks every flight.

`python -m demo` runs the demo. See docs/guides/demo.md.
"""
