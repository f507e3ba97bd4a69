"""Generates interleaved traces of an order-fulfilment process for `benchmarks/constraints.py`.

An order takes its items from local or remote stock and gets up to three invoices, while suppliers are asked for up to
three quotes. The credit check and the delivery follow. The tasks of the patterns and this outline come from the paper
(see the benchmark). The rest is our choice, and the savings of constraints depend on it:

- Stock and suppliers run in parallel, and suppliers are `PACE` times as fast as the warehouse. The faster they are, the
  more Q2 saves if quotes are low, and the less both patterns save if stock is local.
- There is no invoice after SendInvoice and no quote after SendQuote, so a trace without a high price cannot match after
  them. A trace that takes local stock cannot match patterns with remote stock from then on.
- Half of an order's events, from the credit check to the payment, come after all of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Moments = npt.NDArray[np.float64]

PROCESS = """
PlaceOrder -> CheckInventory
-> {
    (UseLocalStock | UseRemoteStock) -> GenerateInvoice+ -> SendInvoice,
    [OrderFromSupplier -> GenerateQuote+ -> SendQuote]
}
-> CheckCredit
-> (
    RejectOrder
    | ApproveCredit -> (
        CancelOrder
        | ConfirmOrder -> CollectItems -> PackItems -> BookCarrier -> PrintLabel -> ShipOrder -> DeliverOrder
          -> ReceivePayment -> FinishOrder
    )
)
"""
"""The process, in the notation of `ensue.workflow`."""

ENDS = ("FinishOrder", "CancelOrder", "RejectOrder")
DELIVERY = (
    "ConfirmOrder",
    "CollectItems",
    "PackItems",
    "BookCarrier",
    "PrintLabel",
    "ShipOrder",
    "DeliverOrder",
    "ReceivePayment",
    "FinishOrder",
)
MOST_REPEATS = 3
PACE = 6.0
HIGH = 200
"""Patterns ask for prices above this."""

# When the parts of a trace come, on a scale of its own: the parallel part lies between PARALLEL and CREDIT.
PARALLEL, CREDIT = 2.0, 3.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of traces: of those that take local stock, whose invoices or quotes all are low, that ask no supplier,
    and that end otherwise than by FinishOrder."""

    local: float = 0.0
    low_invoices: float = 0.0
    low_quotes: float = 0.0
    unsupplied: float = 0.0
    rejected: float = 0.05
    cancelled: float = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """Events of one task: their traces, when they come within them, and whether their prices are low."""

    task: str
    traces: Numbers
    moments: Moments
    low: npt.NDArray[np.bool_] | None = None


def make_events(traces: int, concurrent: int, shares: Shares, seed: int = 0) -> pa.Table:
    """About 20 events for each of so many traces, of which `concurrent` are open at a time, in order of time `t`.

    Each next event comes from any open trace; another trace opens when one ends. The first ones open one by one, so
    that the stream does not begin with all of them in the same place.
    """
    random = np.random.default_rng(seed)
    parts = list(_parts(traces, shares, random))
    counts = [len(part.traces) for part in parts]
    trace = np.concatenate([part.traces for part in parts])
    task = np.repeat(np.arange(len(parts)), counts)
    low = np.concatenate(
        [random.random(len(part.traces)) < 0.5 if part.low is None else part.low[part.traces] for part in parts]
    )
    within = np.lexsort((np.concatenate([part.moments for part in parts]), trace))
    order = within[_interleaved(trace[within], traces, concurrent, random)]
    trace, task, low = trace[order], task[order], low[order]
    cents = random.integers(1, 100 * HIGH, len(trace), endpoint=True)
    regions, suppliers = pa.array(["north", "east", "south", "west"]), pa.array([f"S{n:02d}" for n in range(50)])
    return pa.table(
        {
            "t": np.arange(len(trace)),
            "type": pa.array([part.task for part in parts]).take(pa.array(task)),
            "order_id": trace,
            "price": np.where(low, cents, cents + 100 * HIGH) / 100,
            "amount": random.integers(1, 100, len(trace)),
            "customer": random.integers(0, 1 + traces // 10, traces)[trace],
            "supplier": suppliers.take(pa.array(random.integers(0, len(suppliers), len(trace)))),
            "region": regions.take(pa.array(random.integers(0, len(regions), traces)[trace])),
        }
    )


def _parts(count: int, shares: Shares, random: np.random.Generator) -> Iterator[Part]:
    """The tasks of all traces, each with the traces that it occurs in."""
    everything = np.arange(count)
    for place, task in enumerate(("PlaceOrder", "CheckInventory")):
        yield Part(task, everything, np.full(count, float(place)))
    local = _chosen(count, shares.local, random)
    supplied = ~_chosen(count, shares.unsupplied, random)
    low_invoices, low_quotes = (_chosen(count, share, random) for share in (shares.low_invoices, shares.low_quotes))
    first, middle, last = _branch(count, 1.0, random)
    yield Part("UseLocalStock", everything[local], first[local])
    yield Part("UseRemoteStock", everything[~local], first[~local])
    for repeated, moments in middle:
        yield Part("GenerateInvoice", everything[repeated], moments[repeated], low_invoices)
    yield Part("SendInvoice", everything, last)
    first, middle, last = _branch(count, PACE, random)
    yield Part("OrderFromSupplier", everything[supplied], first[supplied])
    for repeated, moments in middle:
        quoted = repeated & supplied
        yield Part("GenerateQuote", everything[quoted], moments[quoted], low_quotes)
    yield Part("SendQuote", everything[supplied], last[supplied])
    yield Part("CheckCredit", everything, np.full(count, CREDIT))
    yield from _endings(everything, shares, random)


def _branch(
    count: int, pace: float, random: np.random.Generator
) -> tuple[Moments, list[tuple[npt.NDArray[np.bool_], Moments]], Moments]:
    """When the events of one branch come: its first, those that are repeated up to MOST_REPEATS times, and its last."""
    times = random.exponential(1 / pace, (MOST_REPEATS + 2, count)).cumsum(axis=0)
    moments = PARALLEL + (CREDIT - PARALLEL) * times / (1 + times)
    repeats = random.integers(1, MOST_REPEATS, count, endpoint=True)
    middle = [(repeats > number, moments[1 + number]) for number in range(MOST_REPEATS)]
    return moments[0], middle, np.take_along_axis(moments, (repeats + 1)[None, :], axis=0)[0]


def _endings(traces: Numbers, shares: Shares, random: np.random.Generator) -> Iterator[Part]:
    chance = random.random(len(traces))
    rejected = chance < shares.rejected
    cancelled = ~rejected & (chance < shares.rejected + shares.cancelled)
    finished = ~rejected & ~cancelled
    endings = [(rejected, ("RejectOrder",)), (~rejected, ("ApproveCredit",))]
    for chosen, tasks in (*endings, (cancelled, ("", "CancelOrder")), (finished, ("", *DELIVERY))):
        for place, task in enumerate(tasks):
            if task:
                yield Part(task, traces[chosen], np.full(np.count_nonzero(chosen), CREDIT + 1 + place))


def _chosen(count: int, share: float, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """A random set of as many as the share says."""
    chosen = np.zeros(count, bool)
    chosen[: round(share * count)] = True
    return random.permutation(chosen)


def _interleaved(trace: Numbers, traces: int, concurrent: int, random: np.random.Generator) -> Numbers:
    """The order in which events come that are sorted by trace.

    Each of `concurrent` lines takes one trace after the other and gives its events at random moments, all lines at the
    same rate: the line of the next event is any of them. Lines begin at random within the time that a trace takes.
    """
    lines = np.arange(traces) % concurrent
    by_line = np.argsort(lines[trace], kind="stable")
    line = lines[trace][by_line]
    moments = random.exponential(1.0, len(trace)).cumsum()
    begins = np.searchsorted(line, np.arange(min(traces, concurrent)))
    offsets = moments[begins] - random.random(len(begins)) * len(trace) / traces
    return by_line[np.argsort(moments - offsets[line], kind="stable")]
