"""Values of events, matches and proofs as JSON can hold them, cut where they are long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ensue.explanation.proofs import Proof
from ensue.explanation.report.limits import MOST_LETTERS, MOST_PARTS
from ensue.expr.kinds import NANOSECONDS_PER_UNIT


def plain(value: Any) -> Any:
    """A value as JSON holds it; what JSON does not know, and what is long, as text.

    >>> plain({"at": float("nan"), "parts": [b"ab", None, True]})
    {'at': 'NaN', 'parts': ['0x6162', None, True]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "∞", "-inf": "-∞"}[str(value)]
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in list(value.items())[:MOST_PARTS]}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value[:MOST_PARTS]] + (["…"] if len(value) > MOST_PARTS else [])
    if isinstance(value, bytes):
        return cut(f"0x{value[:MOST_LETTERS].hex()}")
    return cut(str(value))


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """The text, or its beginning with dots."""
    return text if len(text) <= most else text[: most - 1] + "…"


def on_axis(ticks: int, time_type: pa.DataType) -> float | int:
    """A time as the page draws it: milliseconds since 1970, or the number.

    >>> on_axis(1_500_250, pa.timestamp("us")), on_axis(7, pa.int64())
    (1500.25, 7)
    """
    if not pa.types.is_timestamp(time_type):
        return int(ticks)
    milliseconds = int(ticks) * NANOSECONDS_PER_UNIT[time_type.unit] / 1_000_000
    return int(milliseconds) if milliseconds.is_integer() else round(milliseconds, 3)


def proof_tree(proof: Proof, events: list[int]) -> dict[str, Any]:
    """A proof as nested dictionaries; `events` are the numbers of its events, in the order in which it names them."""
    tree: dict[str, Any] = {"kind": proof.kind, "text": cut(proof.text, 4 * MOST_LETTERS)}
    if proof.kind == "event":
        tree["event"] = events.pop(0)
    parts = [proof_tree(part, events) for part in proof.because]
    if len(parts) > MOST_PARTS:
        parts = [*parts[:MOST_PARTS], {"kind": "cut", "text": f"and {len(parts) - MOST_PARTS:,} more"}]
    if parts:
        tree["because"] = parts
    return tree
