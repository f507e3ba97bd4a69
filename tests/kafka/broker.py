"""A broker of Kafka on this machine for as long as a test needs it, and Kafka's own programs to write and read."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from inside import find_java

HERE = Path(__file__).parent
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m"]
SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.quorum.voters=1@127.0.0.1:{control}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
LONGEST_DOWNLOAD = 1200
LONGEST_START = 900


def java() -> str:
    return find_java().executable


def jars() -> Path:
    """The folder of the jars, in `broker` and `connector`; fetched once. Skips the test where they cannot be."""
    wanted = (HERE / "ivy.xml").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ensue-tests")
    folder = cache / hashlib.sha256(wanted).hexdigest()[:12]
    done = folder / "complete"
    if not done.exists():
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        pattern = folder / "[conf]" / "[artifact]-[revision].[ext]"
        command = [java(), "-jar", str(ivy), "-ivy", str(HERE / "ivy.xml"), "-cache", str(cache / "ivy"), "-error"]
        command += ["-types", "jar", "bundle", "-retrieve", str(pattern)]
        fetched = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_DOWNLOAD, check=False)
        if fetched.returncode:
            pytest.skip(f"the jars of Kafka cannot be fetched from Maven Central: {fetched.stdout[-500:]}")
        done.touch()
    return folder


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs, and the class path of Kafka's programs."""

    servers: str
    class_path: str
    folder: Path

    @contextmanager
    def writer(self, topic: str) -> Iterator[Writer]:
        """Kafka's console producer, which lives on, so that a record costs no start of a program."""
        command = self._program("org.apache.kafka.tools.ConsoleProducer", "--topic", topic)
        with running(command, self.folder / "producer.log", stdin=True) as process:
            yield Writer(process)

    @contextmanager
    def reader(self, topics: str) -> Iterator[Reader]:
        """Kafka's console consumer, which writes all records of the topics to a file as they come."""
        command = self._program("org.apache.kafka.tools.consumer.ConsoleConsumer", "--include", topics)
        command += ["--from-beginning", "--property", "print.key=true"]
        # New topics are looked for every so often.
        command += ["--consumer-property", "metadata.max.age.ms=1000"]
        found = self.folder / "consumed"
        with running(command, found):
            yield Reader(found)

    def _program(self, name: str, *options: str) -> list[str]:
        return [java(), *QUICK, "-cp", self.class_path, name, "--bootstrap-server", self.servers, *options]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes records, one a line."""

    process: subprocess.Popen[str]

    def write(self, *values: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{value}\n" for value in values))
        self.process.stdin.flush()


@dataclass(frozen=True, slots=True)
class Reader:
    """What a consumer has written: keys and values of records, in the order in which they came."""

    file: Path

    def records(self) -> list[tuple[str, str]]:
        lines = self.file.read_text().splitlines()
        return [(key, value) for key, tab, value in (line.partition("\t") for line in lines) if tab]


@contextmanager
def running(command: list[str], output: Path, *, stdin: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended with the block."""
    with output.open("w") as said:
        given = subprocess.PIPE if stdin else subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=given, stdout=said, stderr=subprocess.DEVNULL, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker with an empty log, as one process without ZooKeeper."""
    class_path = str(jars() / "broker" / "*")
    port, control = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(port=port, control=control, folder=folder / "log"))
    begin = [java(), *QUICK, "-cp", class_path]
    # A cluster id is any 16 bytes in base64.
    formatting = [*begin, "kafka.tools.StorageTool", "format", "-t", "ensue-tests-ensue-test", "-c", str(settings)]
    subprocess.run(formatting, check=True, capture_output=True, timeout=LONGEST_START)
    with running([*begin, "kafka.Kafka", str(settings)], folder / "broker.log") as process:
        deadline = time.monotonic() + LONGEST_START
        while not listens(port):
            assert process.poll() is None, (folder / "broker.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the broker does not listen"
            time.sleep(0.1)
        yield Broker(f"127.0.0.1:{port}", class_path, folder)


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
