"""Webhooks against a server on this machine: what it gets, what it answers, and when it does not answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from actions.programs import LATE, fast, orders
from ensue import SchemaError
from ensue.actions import act as act_on
from ensue.actions import webhook


class Server(ThreadingHTTPServer):
    """Answers the n-th request of each delivery with the n-th of `answers`, the last one from then on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[int] = [200]
        self.delay = 0.0
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.seen: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?x=1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        time.sleep(self.server.delay)
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        answer = self.server.answers[min(self.server.seen[key], len(self.server.answers) - 1)]
        self.server.seen[key] += 1
        self.send_response(answer)
        if 300 <= answer < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield running
        running.shutdown()


def act(url: str, timeout: float = 10, **options: Any) -> Any:
    receiver = webhook(url, headers={"Authorization": "Bearer secret"}, timeout=timeout)
    return act_on(orders(range(3)), LATE, {"notify": receiver}, **fast(**options))


def test_the_request(server: Server) -> None:
    assert act(server.url).delivered == 2
    path, headers, body = server.requests[0]
    assert path == "/hook?x=1"
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", "Bearer secret")
    assert body == {"delivery_id": headers["Idempotency-Key"], "action": "notify", "arguments": {"arg_1": 0, "qty": 0}}


def test_answers_of_500_are_followed_by_the_same_request(server: Server) -> None:
    server.answers = [500, 503, 429, 201]
    done = act(server.url)
    assert (done.delivered, done.retried, done.failed) == (2, 2, 0)
    bodies = [body for _, _, body in server.requests]
    assert len(bodies) == 8
    assert bodies[:2] == bodies[2:4] == bodies[6:]


@pytest.mark.parametrize("answer", [400, 404, 410, 302, 308])
def test_answers_that_will_not_change_are_dead_letters_at_once(server: Server, answer: int) -> None:
    server.answers = [answer]
    done = act(server.url)
    assert (done.delivered, done.failed, len(server.requests)) == (0, 2, 2)
    assert done.dead_letters.column("error")[0].as_py().startswith(f"RejectedCall: HTTP {answer}")


def test_a_server_that_does_not_answer_in_time(server: Server) -> None:
    server.delay = 2.0
    done = act(server.url, timeout=0.05, retries=1)
    assert (done.delivered, done.failed) == (0, 2)
    assert set(done.dead_letters.column("attempts").to_pylist()) == {2}
    assert "timed out" in done.dead_letters.column("error")[0].as_py()


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = act(f"http://127.0.0.1:{taken.getsockname()[1]}/", retries=1)
    assert done.failed == 2
    assert "refused" in done.dead_letters.column("error")[0].as_py()


@pytest.mark.parametrize("url", ["file:///etc/hosts", "example.org/hook", "ftp://example.org", ""])
def test_addresses_that_are_no_webhooks(url: str) -> None:
    with pytest.raises(SchemaError) as caught:
        webhook(url)
    assert caught.value.code == "webhook-url"


def test_a_timeout_that_is_none() -> None:
    with pytest.raises(SchemaError) as caught:
        webhook("https://example.org", timeout=0)
    assert caught.value.code == "delivery-option"


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(webhook("https://example.org", headers={"Authorization": "secret"}))
