"""Functions of the user that tests call in queries; the oracle calls them for one row at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import ensue


@ensue.function(takes=[pa.int64()], returns=pa.int64())
def twice(x: Any) -> Any:
    return pc.multiply(x, 2)


@ensue.function(takes=[pa.int64(), pa.int64()], returns=pa.bool_())
def near(x: Any, y: Any) -> Any:
    """Not null for nulls: those of both sides are near to each other."""
    return pc.less_equal(pc.abs(pc.subtract(pc.fill_null(x, 0), pc.fill_null(y, 0))), 1)


@ensue.function(takes=[pa.string()], returns=pa.string())
def marked(text: Any) -> Any:
    """Null for 'b'."""
    return pc.if_else(pc.equal(text, "b"), pa.scalar(None, pa.string()), pc.binary_join_element_wise(text, "!", ""))


FUNCTIONS = [twice, near, marked]
