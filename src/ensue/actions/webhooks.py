"""Calls as HTTP POST requests with a JSON body."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ensue.actions.calls import Call
from ensue.actions.receivers import Rejected
from ensue.errors import SchemaError

WORTH_REPEATING = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Answers of 400 to 499 after which the same request may yet be taken; after the others it never will."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would arrive as a GET without its body."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts each call to an address. See `webhook`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0

    def deliver(self, call: Call) -> None:
        sent = {"Content-Type": "application/json", **self.headers, "Idempotency-Key": call.delivery_id}
        request = urllib.request.Request(self.url, call.to_json().encode(), sent, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout):
                return
        except urllib.error.HTTPError as error:
            with error:
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in WORTH_REPEATING:
                    raise Rejected(f"HTTP {error.code} {error.reason}") from error
                raise


def webhook(url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 10.0) -> Webhook:
    """A receiver that posts each call to `url` as `{"delivery_id": ..., "action": ..., "arguments": {...}}`.

    The id is also the header `Idempotency-Key`. An answer of 200 to 299 says that the call was taken. After 408, 409,
    425, 429, 500 and above, after `timeout` seconds without an answer and where nobody answers, it is repeated; after
    any other answer, a redirection too, it is not.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SchemaError(
            "webhook-url", f"a webhook has an address of http or https, not {url!r}", "write it with `https://`"
        )
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise SchemaError("delivery-option", f"`timeout` is a number of seconds above 0, not {timeout!r}")
    return Webhook(url, dict(headers or {}), float(timeout))
