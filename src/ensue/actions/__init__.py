"""Actions: calls of functions, webhooks, tables and topics for the events that a program's ON statements name."""

from ensue.actions.bindings import Delivery
from ensue.actions.delivery import Deliveries
from ensue.actions.receivers import Call, RejectedCall
from ensue.actions.runner import act
from ensue.actions.sinks import kafka, spark_sink, table_sink, webhook

__all__ = [
    "Call",
    "Deliveries",
    "Delivery",
    "RejectedCall",
    "act",
    "kafka",
    "spark_sink",
    "table_sink",
    "webhook",
]


def __dir__() -> list[str]:
    return [*__all__]
