"""The package gives its names when they are asked for, and all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ensue


def test_every_public_name_is_there() -> None:
    assert set(ensue.__all__) == set(ensue._HOMES)
    assert all(getattr(ensue, name) is not None for name in ensue.__all__)
    assert set(ensue.__all__) <= set(dir(ensue))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'detectt'"):
        _ = ensue.detectt  # type: ignore[attr-defined]


def test_importing_the_package_loads_no_compiler() -> None:
    code = "import sys, ensue; print([name for name in ('numba', 'pyarrow', 'pandas', 'lark') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
