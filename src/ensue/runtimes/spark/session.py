"""Spark sessions: create one with settings that suit Ensue, and recommend settings for an existing one."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.errors import EnsueNotice, warn
from ensue.runtimes.spark.java import find_java, require_pyspark, starting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_STATE = "spark.sql.streaming.stateStore.providerClass"
_OURS = "spark.ensue.session"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_GIB = 2**30

TUNED = {
    # Spark checks the bytes of an Arrow batch after each row: 10 million rows take 5.2 s with its limit, 1.6 s without.
    _BYTES: str(2**31 - 1),
    _ROWS: "1000000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Keeps state larger than memory, and restarts do not read all of it.
    _STATE: ROCKSDB,
    # A micro-batch writes only changes; full snapshots are written in the background. Commits take a third of the time.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Results do not depend on the machine, and no local time is missing or ambiguous.
    "spark.sql.session.timeZone": "UTC",
}
"""Settings that can be changed at any time, also on Spark Connect."""

_advised: set[tuple[str, str]] = set()


def spark_session(
    name: str = "ensue",
    *,
    master: str | None = None,
    memory: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, or create one with settings that suit Ensue.

    `master` defaults to `local[*]`, the environment (`SPARK_MASTER`, `SPARK_REMOTE`) or Spark's configuration files;
    `sc://host` connects to a Spark Connect server and needs no Java. `memory` is the memory of the Spark process
    ("4g"); the default is a quarter of the machine's memory. It has no effect on a Spark Connect server. `config`
    overrides all other settings. If a session is already running, it is returned unchanged and all arguments are
    ignored; a notice lists the settings that would make it faster.

    >>> import ensue
    >>> spark = ensue.spark_session()  # doctest: +SKIP
    >>> ensue.detect(spark.read.parquet("events"), query, time="t", type="type").show()  # doctest: +SKIP
    """
    require_pyspark()
    session = running_session()
    if session is not None:
        advise(session, streaming=True)
        return session
    asked = dict(config or {})
    if master is not None:
        asked["spark.remote" if master.startswith("sc://") else "spark.master"] = master
    return _start(name, asked, memory)


def running_session() -> SparkSession | None:
    """Return the session of this thread, or of this process."""
    import pyspark
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    # Spark Connect clients have no SparkContext.
    context = getattr(pyspark, "SparkContext", None)
    if session is None and context is not None and context._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return session


def _start(name: str, asked: Mapping[str, str], memory: str | None) -> SparkSession:
    given = {**environment_settings(), **({"spark.driver.memory": memory} if memory else {}), **asked}
    remote = "" if "spark.master" in asked else given.pop("spark.remote", "")
    if remote.startswith("sc://"):
        # The configuration files of this machine do not apply to the server.
        return _build({**TUNED, **asked, "spark.remote": remote})
    from pyspark import SparkContext

    if remote:
        given["spark.remote"] = remote
        del given["spark.master"]
    master = remote or given["spark.master"]
    settings = {"spark.app.name": name, **TUNED, **process_settings(master), **given}
    with _same_python(master, settings), _own_interrupt(), warnings.catch_warnings():
        # A local Connect server receives every setting twice and warns about those it accepts only once.
        warnings.filterwarnings("ignore", "Failed to set spark", module=r"pyspark\.sql\.connect")
        if SparkContext._gateway is not None or _GATEWAY in os.environ:
            return _build(settings)
        with starting(find_java(), _log_options()):
            return _build(settings)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the program's own Ctrl-C handler: PySpark's handler calls Java, possibly during another call."""
    own = signal.getsignal(signal.SIGINT)
    yield
    if own is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, own)


def _build(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in {**settings, _OURS: "true"}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def environment_settings() -> dict[str, str]:
    """Return the settings of Spark's file, of spark-submit arguments and of environment variables; later ones win."""
    settings = {"spark.master": "local[*]"}
    if _GATEWAY in os.environ:
        from pyspark import SparkConf, SparkContext

        # spark-submit has started this process and has read all settings.
        SparkContext._ensure_initialized()
        return {**settings, **dict(SparkConf().getAll())}
    defaults = _spark_folder() / "spark-defaults.conf"
    if defaults.is_file():
        settings.update(_file_settings(defaults.read_text("utf-8")))
    settings.update(_submit_settings(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    for variable, key in (
        ("MASTER", "spark.master"),
        ("SPARK_MASTER", "spark.master"),
        ("SPARK_REMOTE", "spark.remote"),
    ):
        if os.environ.get(variable):
            settings[key] = os.environ[variable]
    return settings


def _file_settings(text: str) -> dict[str, str]:
    """Parse the settings of a `spark-defaults.conf`.

    >>> _file_settings("# ours\\nspark.master   yarn\\nspark.ui.enabled=true")
    {'spark.master': 'yarn', 'spark.ui.enabled': 'true'}
    """
    found = re.findall(r"^\s*([^\s#=:][^\s=:]*)\s*[\s=:]\s*(.*?)\s*$", text, re.MULTILINE)
    return dict(found)


def _submit_settings(arguments: str) -> dict[str, str]:
    """Parse the settings in arguments of spark-submit.

    >>> _submit_settings("--master local[4] --conf spark.ui.enabled=true pyspark-shell")
    {'spark.master': 'local[4]', 'spark.ui.enabled': 'true'}
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--master", dest="spark.master")
    parser.add_argument("--remote", dest="spark.remote")
    parser.add_argument("--driver-memory", dest="spark.driver.memory")
    parser.add_argument("--conf", "-c", action="append", default=[])
    found = vars(parser.parse_known_args(shlex.split(arguments))[0])
    for entry in found.pop("conf"):
        key, _, value = entry.partition("=")
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def process_settings(master: str) -> dict[str, str]:
    """Return the settings that Spark only reads when its process starts."""
    settings = {
        "spark.ui.enabled": "false",
        # Spark draws its progress bar even without a terminal.
        "spark.ui.showConsoleProgress": "true" if sys.stderr is not None and sys.stderr.isatty() else "false",
    }
    if available := machine_memory():
        # Python needs the rest. Above 32 GiB, Java pointers take twice the space.
        settings["spark.driver.memory"] = f"{min(max(available // 4, _GIB), 31 * _GIB) // 2**20}m"
    if cores := local_cores(master):
        # A stream opens and commits one state per partition, so one per core; a batch balances its tasks with more.
        settings["spark.sql.shuffle.partitions"] = str(cores)
        settings["spark.sql.adaptive.coalescePartitions.initialPartitionNum"] = str(2 * cores)
        # No other machine connects, and a host name that does not resolve does no harm.
        settings["spark.driver.host"] = "localhost"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def local_cores(master: str) -> int:
    """Return how many tasks a local master runs at the same time; 0 for a cluster.

    >>> local_cores("local"), local_cores("local[4]"), local_cores("local[2,3]"), local_cores("spark://host:7077")
    (1, 4, 2, 0)
    """
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if found is None:
        return 0
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def machine_memory() -> int:
    """Return the memory of this machine or container in bytes; 0 if unknown."""
    if not hasattr(os, "sysconf"):
        return 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(limit)
        if path.is_file() and (text := path.read_text("ascii").strip()).isdecimal():
            memory = min(memory, int(text))
    return memory


def _spark_folder() -> Path:
    """Return the folder of Spark's configuration files."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))


def _log_options() -> list[str]:
    """Log only errors, unless the user has a log4j2.properties file."""
    if (_spark_folder() / "log4j2.properties").is_file():
        return []
    quiet = Path(__file__).with_name("log4j2.properties")
    return [f'"-Dlog4j2.configurationFile={quiet.as_uri()}"']


@contextmanager
def _same_python(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Run workers with the Python that the user chose; in a local session the default is the current Python.

    PySpark reads it from the environment at startup and ignores the setting.
    """
    before = os.environ.get("PYSPARK_PYTHON")
    python = settings.get("spark.pyspark.python") or before or (sys.executable if local_cores(master) else None)
    if python == before:
        yield
        return
    assert python is not None
    os.environ["PYSPARK_PYTHON"] = python
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


def advise(session: SparkSession, *, streaming: bool = False) -> None:
    """Show a notice once with settings that would make this session faster; none for a session of `spark_session`.

    The notice is an `ensue.EnsueNotice`: `warnings.simplefilter("ignore", ensue.EnsueNotice)` turns it off.
    """
    if session.conf.get(_OURS, ""):
        return
    slow = [key for key in (_BYTES, _ROWS) if _is_smaller(_setting(session, key), TUNED[key])]
    if streaming and _setting(session, _STATE) not in (None, ROCKSDB):
        slow.append(_STATE)
    lines = [f'  spark.conf.set("{key}", "{TUNED[key]}")  # now {_setting(session, key)}' for key in slow]
    advice = "\n".join(["these settings would make this Spark session faster:", *lines])
    place = (_setting(session, "spark.app.id") or "", advice)
    if lines and place not in _advised:
        _advised.add(place)
        warn(advice, EnsueNotice)


def _setting(session: SparkSession, key: str) -> str | None:
    """Return the value of a setting; None if Spark does not know or reveal it."""
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(key)
    except PySparkException:
        return None


def _is_smaller(value: str | None, wanted: str) -> bool:
    """Return True if a number of rows or bytes is a limit and lower than `wanted`.

    >>> _is_smaller("67108864b", "2147483647"), _is_smaller("64m", "2147483647"), _is_smaller("-1", "1000000")
    (True, True, False)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", value.strip().lower()) if value else None
    return found is not None and 0 < int(found[1]) << (10 * " kmgt".index(found[2] or " ")) < int(wanted)
