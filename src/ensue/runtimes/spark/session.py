"""Spark sessions: a well-tuned one where there is none, advice where there is one."""

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

from ensue.errors import EnsueNotice
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
    # State beyond the memory of the process, and restarts that do not read all of it.
    _STATE: ROCKSDB,
    # A micro-batch writes what has changed; whole states are written behind its back: commits take a third of the time.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A program gives the same answer on every machine, and no local time is missing or there twice.
    "spark.sql.session.timeZone": "UTC",
}
"""What can be set at any time, on Spark Connect too."""

_advised: set[tuple[str, str]] = set()


def spark_session(
    name: str = "ensue",
    *,
    master: str | None = None,
    memory: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process; if there is none, a new one with settings that suit Ensue.

    `master` is `local[*]` unless given here, in the environment (`SPARK_MASTER`, `SPARK_REMOTE`) or in Spark's own
    files; `sc://host` connects to a Spark Connect server and needs no Java. `memory` is that of the Spark process
    ("4g"), a quarter of the machine's unless given; a Spark Connect server has its own. What `config` says wins over
    everything. A session that is already there is given back as it is, whatever the arguments; a notice names the
    settings that would make it faster.

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
    """The session of this thread, or else that of this process."""
    import pyspark
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    # The client of Spark Connect has no SparkContext.
    context = getattr(pyspark, "SparkContext", None)
    if session is None and context is not None and context._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return session


def _start(name: str, asked: Mapping[str, str], memory: str | None) -> SparkSession:
    given = {**environment_settings(), **({"spark.driver.memory": memory} if memory else {}), **asked}
    remote = "" if "spark.master" in asked else given.pop("spark.remote", "")
    if remote.startswith("sc://"):
        # What the files of this machine say is not about that server.
        return _build({**TUNED, **asked, "spark.remote": remote})
    from pyspark import SparkContext

    if remote:
        given["spark.remote"] = remote
        del given["spark.master"]
    master = remote or given["spark.master"]
    settings = {"spark.app.name": name, **TUNED, **process_settings(master), **given}
    with _same_python(master, settings), _own_interrupt(), warnings.catch_warnings():
        # A local Connect server is told everything twice, and warns of what it takes only once.
        warnings.filterwarnings("ignore", "Failed to set spark", module=r"pyspark\.sql\.connect")
        if SparkContext._gateway is not None or _GATEWAY in os.environ:
            return _build(settings)
        with starting(find_java(), _log_options()):
            return _build(settings)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """A handler of the program for Ctrl-C stays: PySpark's own talks to Java, perhaps in the middle of such a talk."""
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
    """What the environment says: Spark's own file, the arguments of spark-submit, variables; the later the stronger."""
    settings = {"spark.master": "local[*]"}
    if _GATEWAY in os.environ:
        from pyspark import SparkConf, SparkContext

        # spark-submit has started this very process, and has read all of it.
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
    """The settings of a `spark-defaults.conf`.

    >>> _file_settings("# ours\\nspark.master   yarn\\nspark.ui.enabled=true")
    {'spark.master': 'yarn', 'spark.ui.enabled': 'true'}
    """
    found = re.findall(r"^\s*([^\s#=:][^\s=:]*)\s*[\s=:]\s*(.*?)\s*$", text, re.MULTILINE)
    return dict(found)


def _submit_settings(arguments: str) -> dict[str, str]:
    """The settings among arguments of spark-submit.

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
    """What has to be known when the Spark process starts."""
    settings = {
        "spark.ui.enabled": "false",
        # Spark draws its bar whether there is a terminal or not.
        "spark.ui.showConsoleProgress": "true" if sys.stderr is not None and sys.stderr.isatty() else "false",
    }
    if available := machine_memory():
        # Python needs the rest. Beyond 32 GiB pointers take twice the room.
        settings["spark.driver.memory"] = f"{min(max(available // 4, _GIB), 31 * _GIB) // 2**20}m"
    if cores := local_cores(master):
        # A stream opens and commits a state per partition, so one per core; a batch evens out its tasks with more.
        settings["spark.sql.shuffle.partitions"] = str(cores)
        settings["spark.sql.adaptive.coalescePartitions.initialPartitionNum"] = str(2 * cores)
        # Nobody else has to reach it, and a host name that does not resolve does no harm.
        settings["spark.driver.host"] = "localhost"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def local_cores(master: str) -> int:
    """How many tasks a local master runs at a time; 0 for a cluster.

    >>> local_cores("local"), local_cores("local[4]"), local_cores("local[2,3]"), local_cores("spark://host:7077")
    (1, 4, 2, 0)
    """
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if found is None:
        return 0
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def machine_memory() -> int:
    """The bytes of memory of this machine or container; 0 if it does not say."""
    if not hasattr(os, "sysconf"):
        return 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(limit)
        if path.is_file() and (text := path.read_text("ascii").strip()).isdecimal():
            memory = min(memory, int(text))
    return memory


def _spark_folder() -> Path:
    """Where Spark looks for files of settings."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))


def _log_options() -> list[str]:
    """Errors only, unless the user has a file that says what to log."""
    if (_spark_folder() / "log4j2.properties").is_file():
        return []
    quiet = Path(__file__).with_name("log4j2.properties")
    return [f'"-Dlog4j2.configurationFile={quiet.as_uri()}"']


@contextmanager
def _same_python(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Workers run the Python that the user has named, those of a local session otherwise this very one.

    PySpark reads it from the environment when it starts, and passes over the setting.
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


def advise(session: SparkSession, *, streaming: bool = False, stacklevel: int = 3) -> None:
    """Names, once, the settings with which Ensue would be faster on this session; nothing on one of `spark_session`.

    A notice is an `ensue.EnsueNotice`: `warnings.simplefilter("ignore", ensue.EnsueNotice)` turns it off.
    """
    if session.conf.get(_OURS, ""):
        return
    slow = [key for key in (_BYTES, _ROWS) if _is_smaller(_setting(session, key), TUNED[key])]
    if streaming and _setting(session, _STATE) not in (None, ROCKSDB):
        slow.append(_STATE)
    lines = [f'  spark.conf.set("{key}", "{TUNED[key]}")  # is {_setting(session, key)}' for key in slow]
    advice = "\n".join(["this Spark session would be faster with", *lines])
    place = (_setting(session, "spark.app.id") or "", advice)
    if lines and place not in _advised:
        _advised.add(place)
        warnings.warn(advice, EnsueNotice, stacklevel=stacklevel)


def _setting(session: SparkSession, key: str) -> str | None:
    """The value of a setting; None where this Spark does not know it or does not tell."""
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(key)
    except PySparkException:
        return None


def _is_smaller(value: str | None, wanted: str) -> bool:
    """Whether a number of rows or bytes is a limit, and a lower one.

    >>> _is_smaller("67108864b", "2147483647"), _is_smaller("64m", "2147483647"), _is_smaller("-1", "1000000")
    (True, True, False)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", value.strip().lower()) if value else None
    return found is not None and 0 < int(found[1]) << (10 * " kmgt".index(found[2] or " ")) < int(wanted)
