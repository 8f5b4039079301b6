# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: the compiled modules, and dependencies that follow from them."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))  # Isolated builds do not have it.
from build_ext import SOURCE, BuildExt, is_pure, modules

# Why each one is here: docs/explanation/dependencies.md.
DEPENDENCIES = [
    "argon2-cffi>=23.1",
    "click>=8.1",
    "google-re2>=1.1.20240702",
    "lark>=1.2,<2",
    "rich>=13.7",
]
PURE = ["Cython>=3.2,<4"]  # Uncompiled, the hot modules import names from it.

CLIENT_ONLY = not (SOURCE / "headrace" / "server").exists()  # As tools/wheels.py lays it out.

setup(
    ext_modules=modules(),
    cmdclass={"build_ext": BuildExt},
    install_requires=([] if CLIENT_ONLY else DEPENDENCIES) + (PURE if is_pure() else []),
)
