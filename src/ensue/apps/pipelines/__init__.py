"""Pipelines as a file: sources, a program, and where its results go, checked before Spark starts."""

from ensue.apps.pipelines.definition import published_schema
from ensue.apps.pipelines.file import read_pipeline, read_pipeline_text
from ensue.apps.pipelines.model import Pipeline

__all__ = ["Pipeline", "published_schema", "read_pipeline", "read_pipeline_text"]
