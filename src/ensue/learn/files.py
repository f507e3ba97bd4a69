"""Refinements as JSON files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.models import Logistic, Model, smoothed_counts
from ensue.engine.refinement import Feature, Reading, feature_columns
from ensue.errors import StateError
from ensue.learn.calibration import Evaluation
from ensue.learn.refinement import Refinement

FORMAT, VERSION = "ensue-refinement", 1


def write_refinement(refinement: Refinement, path: Path) -> Path:
    """Writes the file, whole or not at all."""
    evaluation = refinement.evaluation
    content = {
        "format": FORMAT,
        "version": VERSION,
        "reading": asdict(refinement.reading),
        "labels": refinement.labels,
        "smoothing": refinement.smoothing,
        "counts": [column.to_pylist() for column in refinement.counts.columns],
        "logistic": _written_logistic(refinement.model),
        "evaluation": None
        if evaluation is None
        else {
            "events": evaluation.events,
            "unknown": evaluation.unknown,
            "log_loss": evaluation.log_loss,
            "brier": evaluation.brier,
            "reliability": evaluation.reliability.to_pydict(),
        },
    }
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return unfinished.replace(path)


def _written_logistic(model: Model) -> dict[str, Any] | None:
    if not isinstance(model, Logistic):
        return None
    return {
        "vocabularies": [words.to_pylist() for words in model.vocabularies],
        "weights": [weights.tolist() for weights in model.weights],
        "intercepts": model.intercepts.tolist(),
    }


def load_refinement(path: str | Path) -> Refinement:
    """The refinement that `Refinement.save` wrote to a file.

    >>> import tempfile
    >>> from ensue.learn import fit_refinement
    >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_refinement(fit_refinement(seen, label="who", context="room").save(f"{folder}/who.json"))
    Refinement of `who` to 2 labels by room, from 3 events
    """
    content = _content(Path(path))
    try:
        return _read(content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, pa.ArrowException) as error:
        raise _not_a_refinement(f"`{path}` lacks parts of a refinement") from error


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _not_a_refinement(f"there is no file `{path}`") from error
    except (OSError, ValueError) as error:
        raise _not_a_refinement(f"`{path}` is no JSON file") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _not_a_refinement(f"`{path}` holds no refinement")
    if content.get("version") != VERSION:
        raise StateError(
            "refinement-version",
            f"`{path}` is of version {content.get('version')!r}, and this Ensue reads version {VERSION}",
            "fit and save it again, or use the Ensue that wrote it",
        )
    return content


def _not_a_refinement(message: str) -> StateError:
    return StateError("not-a-refinement", message, "pass a file that `Refinement.save` wrote")


def _read(content: dict[str, Any]) -> Refinement:
    given = content["reading"]
    features = tuple(Feature(**feature) for feature in given["features"])
    reading = Reading(given["label"], features, given["time"], tuple(given["partition_by"]), given["zone"])
    *texts, numbers = content["counts"]
    names = [*feature_columns(len(features)), "label", "count"]
    columns = [*(pa.array(values, pa.string()) for values in texts), pa.array(numbers, pa.int64())]
    counts, labels = pa.table(columns, names=names), tuple(content["labels"])
    smoothing = float(content["smoothing"])
    if content["logistic"] is None:
        model: Model = smoothed_counts(counts, pa.array(labels, pa.string()), smoothing)
    else:
        model = _read_logistic(content["logistic"])
    return Refinement(reading, labels, model, counts, smoothing, _read_evaluation(content["evaluation"]))


def _read_logistic(given: dict[str, Any]) -> Logistic:
    return Logistic(
        tuple(pa.array(words, pa.string()) for words in given["vocabularies"]),
        tuple(np.array(weights, np.float64) for weights in given["weights"]),
        np.array(given["intercepts"], np.float64),
    )


def _read_evaluation(given: dict[str, Any] | None) -> Evaluation | None:
    if given is None:
        return None
    reliability = pa.table(given["reliability"])
    return Evaluation(given["events"], given["unknown"], given["log_loss"], given["brier"], reliability)
