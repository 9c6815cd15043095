"""`hullcast.spark`: tables, changes and subscriptions as Spark's `format("hullcast")` (SPARK.md).

hullcast.spark.register(spark)
spark.read.format("hullcast").option("url", "tcp://127.0.0.1:7600").option("table", "STOCK").load()
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

#: Where the schema of a table that was read says as of which sequence number.
SEQ = "hullcast.seq"


def register(spark: SparkSession) -> None:
    """Make `format("hullcast")` known to a session. UsageError if pyarrow is missing, or hullcast in Spark's."""
    try:
        from hullcast.clients.spark.source import HullcastSource
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise UsageError("hullcast.spark needs pyarrow; install it with pip install 'hullcast[arrow]'") from None

    if not hasattr(spark, "sparkContext"):  # Spark Connect: the Python is the server's
        spark.dataSource.register(HullcastSource)
        return
    context = spark.sparkContext
    before, context.pythonExec = context.pythonExec, _python(context)  # Spark notes it when the source is registered
    try:
        spark.dataSource.register(HullcastSource)
    finally:
        context.pythonExec = before


def seq_of(frame: DataFrame) -> int:
    """The sequence number that a table was read as of: the same for all partitions and all actions of the DataFrame."""
    for field in frame.schema.fields:
        if SEQ in field.metadata:
            return int(field.metadata[SEQ])
    raise UsageError(
        'no column of this DataFrame says when it was read; use the one that spark.read.format("hullcast") gave'
    )


def _python(context: SparkContext) -> str:
    """The Python that runs the source, on the driver and on workers.

    Spark's default is the first `python3` on the PATH, whatever Python the driver is. On one host the driver's own is
    better. If the user chose another, it is tried: its ImportError would be twenty lines of Java otherwise.
    """
    if not (context.master or "").startswith("local"):
        return context.pythonExec
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen:
        return sys.executable
    from pyspark import SparkFiles

    paths = [path for path in sys.path if path.startswith(SparkFiles.getRootDirectory())]  # of `--py-files`
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    try:
        tried = subprocess.run(
            (chosen, "-c", "import hullcast, pyarrow"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
        )
        fault = tried.stderr.strip().rpartition("\n")[2] if tried.returncode else None
    except OSError as error:
        fault = str(error)
    if fault is not None:
        raise UsageError(
            f"Spark's workers run {chosen}, which cannot run Hullcast ({fault}); set PYSPARK_PYTHON={sys.executable}, "
            "or set neither PYSPARK_PYTHON nor spark.pyspark.python"
        )
    return chosen
