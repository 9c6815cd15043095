"""What Spark needs before it is started: a Java that is new enough, and a cluster that answers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess

from network.wire.errors import UsageError

OLDEST_JAVA = 17
#: How long a cluster's master may take to answer.
ANSWER_S = 5.0
_MASTERS = r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[.+\]|k8s://.+"


def check_java() -> None:
    """Refuse to go on without a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    help_text = f"install Java {OLDEST_JAVA} or newer, or let JAVA_HOME name it"
    if java is None:
        raise UsageError(f"Spark needs Java, and there is none on the PATH; {help_text}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"Spark needs Java, but {java} does not run: {error}; {help_text}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)  # 1.8 was Java 8
    if version is not None and int(version[1]) < OLDEST_JAVA:
        raise UsageError(f"{java} is Java {version[1]}, too old for Spark; {help_text}")


def check_master(master: str) -> None:
    """Refuse what names no Spark cluster, and a cluster that does not answer (Spark itself would wait for a minute)."""
    help_text = "give local[4], local[*], spark://host:7077, yarn or k8s://https://host:443"
    if master == "yarn":
        if not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
            raise UsageError("yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, the folder with the cluster's settings")
    elif master.startswith("spark://"):
        addresses = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
        if not all(host and port.isdigit() and int(port) < 65_536 for host, _, port in addresses):
            raise UsageError(f"{master} is no address of a Spark master; as spark://host:7077")
        problems = [_no_answer(host.strip("[]"), int(port)) for host, _, port in addresses]
        if all(problems):
            raise UsageError(f"no Spark master answers at {master}: {problems[0]}; is it running?")
    elif not re.fullmatch(_MASTERS, master):
        raise UsageError(f"{master!r} is no Spark master; {help_text}")


def _no_answer(host: str, port: int) -> str:
    """Why nobody answers there; empty if somebody does."""
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
