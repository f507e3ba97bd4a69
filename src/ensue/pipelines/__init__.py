"""Pipelines as a file: sources, a program, and where its results go, checked before Spark starts."""

from ensue.pipelines.model import Pipeline
from ensue.pipelines.reading import read_pipeline, read_pipeline_text
from ensue.pipelines.schema import published_schema

__all__ = ["Pipeline", "published_schema", "read_pipeline", "read_pipeline_text"]
