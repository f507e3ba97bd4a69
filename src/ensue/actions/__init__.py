"""Actions: ON statements call functions and webhooks, and write to tables and Kafka topics, for each event."""

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
