"""Counting, over traces, which streams occur together and in which order."""

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled

Matrix = npt.NDArray[np.int64]

NEVER = np.iinfo(np.int64).min


@compiled
def count_pairs(
    offsets: Int64s, streams: Codes, firsts: Int64s, lasts: Int64s, together: Matrix, ordered: Matrix
) -> None:
    """Adds the traces to the counts. Trace `k` has the entries `offsets[k]` to `offsets[k + 1]`, in any order.

    An entry says that its stream occurs from `firsts` to `lasts`, of one event both are its time; a stream may have
    several. `together[a, b]` counts the traces with both streams, `ordered[a, b]` those of them in which no `a` is
    later than a `b`. On the diagonal are the traces with `a`, and those in which nothing is later than the first `a`.
    """
    first = np.empty(together.shape[0], np.int64)
    last = np.empty(together.shape[0], np.int64)
    present = np.empty(together.shape[0], np.int32)
    trace_of = np.full(together.shape[0], -1, np.int64)
    for trace in range(offsets.size - 1):
        count = 0
        latest = NEVER
        for i in range(offsets[trace], offsets[trace + 1]):
            stream = streams[i]
            latest = max(latest, lasts[i])
            if trace_of[stream] == trace:
                first[stream] = min(first[stream], firsts[i])
                last[stream] = max(last[stream], lasts[i])
            else:
                trace_of[stream] = trace
                present[count] = stream
                count += 1
                first[stream] = firsts[i]
                last[stream] = lasts[i]
        for one in range(count):
            a = present[one]
            until = last[a]
            for other in range(count):
                b = present[other]
                together[a, b] += 1
                if (until <= first[b]) if a != b else (first[a] == latest):
                    ordered[a, b] += 1
