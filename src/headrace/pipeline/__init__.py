# SPDX-License-Identifier: Apache-2.0
"""Pipelines without code: a TOML file says what Spark reads, makes of it and writes where.

`load` reads and checks the file, `graph` makes DataFrames of it, `run` keeps its queries going,
`state` is what is left on disk between runs. docs/pipelines.md tells how it all is used.
"""
