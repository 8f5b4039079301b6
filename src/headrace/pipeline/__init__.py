# SPDX-License-Identifier: Apache-2.0
"""Pipelines without code: a TOML file declares Spark's sources, steps, rules and sinks.

`config` reads and checks the file. `run` builds DataFrames, runs the queries and keeps their state
on disk. `sinks` writes the rows of batches, and `iceberg` the tables of Iceberg catalogs. `trial`
runs a pipeline on samples. `report` shows the status of a run. `ready` has the included pipelines.
docs/guides/pipelines.md is the guide for users.
"""
