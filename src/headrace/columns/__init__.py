# SPDX-License-Identifier: Apache-2.0
"""Messages of streams and queues as columns of Arrow, for Spark and every other engine.

Options as text, the places of a read, decoding, and record batches. Nothing here needs Spark.
"""
