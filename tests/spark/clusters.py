"""Spark as it runs in production, on this machine: a standalone master with two workers, and a Spark Connect server.

All of it comes from the pip package. Every process ends with the block that started it, and with this process, however
that ends: a shell beside each server reads a pipe of ours and takes its whole process group along when the pipe closes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.find_spark_home import _find_spark_home

from inside import find_java, starting
from spark.cluster_program import QUICK_START

PATIENCE = 900
"""Seconds in which a server has to be up on a busy machine; it takes 5 to 10 when there is nothing else to do."""

LOCAL = "127.0.0.1"
UNTIL_STDIN_ENDS = """
"$@" </dev/null & started=$!
trap '' TERM
cat
kill -TERM 0
(sleep 10; kill -KILL 0) &
wait $started
kill -KILL 0
"""

IN_SPARK = {"SPARK_LOCAL_IP": LOCAL, "SPARK_LOCAL_HOSTNAME": LOCAL}


@dataclass(frozen=True, slots=True)
class Server:
    """A process of Spark and the file that it logs to."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, pattern: str, times: int = 1) -> str:
        """The first group of a line of the log, once there are that many such lines."""
        deadline = time.monotonic() + PATIENCE
        while len(found := re.findall(pattern, self.log.read_text("utf-8", "replace"))) < times:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {pattern!r} after {PATIENCE} s in\n{self.log.read_text('utf-8', 'replace')}")
            time.sleep(0.1)
        return str(found[0])

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=300)
        finally:
            if group_members(self.process.pid):
                os.killpg(self.process.pid, signal.SIGKILL)


def group_members(group: int) -> list[int]:
    """The processes of a group that are still there."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, own, state in rows if int(own) == group and not state.startswith("Z")]


def of_spark(program: str) -> str:
    """A program of the pip package."""
    return str(Path(_find_spark_home(), "bin", program))


@contextmanager
def server(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """A program that runs within the block."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", UNTIL_STDIN_ENDS, name, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **IN_SPARK, **environment},
            cwd=folder,
            start_new_session=True,
        )
    running = Server(process, log)
    try:
        yield running
    finally:
        running.stop()


@dataclass(frozen=True, slots=True)
class Report:
    """What `cluster_program` found, by part, and what it wrote to stderr."""

    found: Mapping[str, Any]
    stderr: str

    def __getitem__(self, part: str) -> Any:
        if part not in self.found:
            raise KeyError(f"the program ended before {part!r}:\n{self.stderr}")
        return self.found[part]


def run_program(url: str, folder: Path) -> Report:
    """Runs `cluster_program` on the session of this address; a part that fails is missing, as are those behind it."""
    program = [sys.executable, "-m", "spark.cluster_program", url, str(folder)]
    tests = str(Path(__file__).parents[1])
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    ran = subprocess.run(
        program, capture_output=True, text=True, timeout=10 * PATIENCE, env={**environment, "PYTHONPATH": tests}
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    seconds = {line["part"]: round(line["seconds"], 1) for line in lines}
    sys.stdout.write(f"seconds: {seconds}\n")
    return Report({line["part"]: line["found"] for line in lines}, ran.stderr)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A standalone cluster: where its master is, and its servers."""

    url: str
    servers: tuple[Server, ...]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers of one core and one GiB each, on ports that are free."""
    environment = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "SPARK_LOCAL_DIRS": str(folder),
    }
    own = ["--host", LOCAL, "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(starting(find_java()))

        def start(name: str, kind: str, *arguments: str) -> Server:
            command = [of_spark("spark-class"), f"org.apache.spark.deploy.{kind}", *own, *arguments]
            return stack.enter_context(server(name, command, folder, environment))

        master = start("master", "master.Master")
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        workers = [start(f"worker-{number}", "worker.Worker", *resources, url) for number in (1, 2)]
        for worker in workers:
            worker.wait_for(r"Successfully registered with master (\S+)")
        yield Cluster(url, (master, *workers))


@contextmanager
def connect_server(folder: Path, master: str = "local[2]") -> Iterator[tuple[str, Server]]:
    """A Spark Connect server with one GiB and its own Python workers, and the address at which to reach it."""
    settings = {
        "spark.connect.grpc.binding.address": LOCAL,
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    command = [of_spark("spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", master, "--driver-memory", "1g", "--driver-java-options", QUICK_START]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    own = {"PYSPARK_PYTHON": sys.executable}
    with starting(find_java()), server("connect", [*command, "spark-internal"], folder, own) as running:
        port = running.wait_for(r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://{LOCAL}:{port}", running
