"""Pipeline files: sources, a program, and outputs for its results. Files are checked before Spark starts."""

from ensue.apps.pipelines.definition import published_schema
from ensue.apps.pipelines.file import read_pipeline, read_pipeline_text
from ensue.apps.pipelines.model import Pipeline

__all__ = ["Pipeline", "published_schema", "read_pipeline", "read_pipeline_text"]
