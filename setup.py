# SPDX-License-Identifier: Apache-2.0
"""The part of packaging that pyproject.toml cannot say: which modules are compiled."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))  # Isolated builds do not have it.
from build_ext import extensions

setup(ext_modules=extensions())
