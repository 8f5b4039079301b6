# SPDX-License-Identifier: Apache-2.0
"""AMQP streams in Apache Spark, as the data source `amqp`.

Spark finds it by itself through the module `pyspark_amqp`; nothing has to be registered. The
options are in `options`, the columns in `schema`, and docs/spark.md tells how it all is used.
"""
