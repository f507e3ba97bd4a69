"""Compiles kernels: once per machine, without the interpreter lock, cached on disk next to their source."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Codes: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compiles a function to machine code and keeps its type for type checkers."""
    return cast("Callable[Parameters, Result]", njit(cache=True, nogil=True)(function))
