# SPDX-License-Identifier: Apache-2.0
"""Pipelines without code: a TOML file declares Spark's sources, steps, rules and sinks.

`config` reads and checks the file; `run` makes DataFrames of it, keeps its queries going, and has
what is left on disk between runs; `sinks` is where rows go; `ready` has pipelines that come with
Headrace. docs/guides/pipelines.md tells how it all is used.
"""
