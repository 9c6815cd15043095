"""A small WebHDFS server over a folder: Hadoop's REST protocol, as far as Spark's own `webhdfs://` client uses it.

    python -m tests.support.webhdfs FOLDER      prints the port it was given, and serves until it is stopped

As in HDFS, a file is written in two requests (the first is redirected), a rename does not overwrite, and what is not
there is a RemoteException with the name of a Java class.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

PREFIX = "/webhdfs/v1"


def main(folder: Path) -> None:
    """Serve."""

    async def handle(request: web.Request) -> web.Response:
        inside = request.path.removeprefix(PREFIX).strip("/")
        path = folder / inside
        operation = request.query.get("op", "").upper()
        try:
            return _OPERATIONS[operation](request, path, folder, await request.read())
        except KeyError:
            return _refused(
                400, "java.lang.IllegalArgumentException", f"Invalid value for webhdfs parameter: {operation}"
            )
        except FileNotFoundError:
            return _refused(404, "java.io.FileNotFoundException", f"File does not exist: /{inside}")
        except FileExistsError:
            return _refused(403, "org.apache.hadoop.fs.FileAlreadyExistsException", f"/{inside} already exists")
        except PermissionError:
            return _refused(403, "org.apache.hadoop.security.AccessControlException", f"Permission denied: /{inside}")

    async def run() -> None:
        app = web.Application(client_max_size=1 << 30)
        app.on_response_prepare.append(_without_type)
        app.router.add_route("*", PREFIX + "{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        await web.SockSite(runner, listening).start()
        print(listening.getsockname()[1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


async def _without_type(request: web.Request, response: web.StreamResponse) -> None:
    """Say nothing of the type of an answer: to read it, the client in Spark's jars needs a class that is not there."""
    response.headers.pop("Content-Type", None)


def _refused(status: int, java: str, message: str) -> web.Response:
    text = {"exception": java.rpartition(".")[2], "javaClassName": java, "message": message}
    return web.json_response({"RemoteException": text}, status=status)


def _status(path: Path, name: str) -> dict[str, Any]:
    found = path.stat()
    folder = path.is_dir()
    return {
        "accessTime": int(found.st_atime * 1000),
        "modificationTime": int(found.st_mtime * 1000),
        "blockSize": 0 if folder else 1 << 27,
        "childrenNum": 0,
        "fileId": found.st_ino,
        "group": "group",
        "owner": "owner",
        "length": 0 if folder else found.st_size,
        "pathSuffix": name,
        "permission": "755" if folder else "644",
        "replication": 0 if folder else 1,
        "storagePolicy": 0,
        "type": "DIRECTORY" if folder else "FILE",
    }


def _get_status(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    return web.json_response({"FileStatus": _status(path, "")})


def _list(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    if path.is_dir():
        found = [_status(item, item.name) for item in sorted(path.iterdir())]
    else:
        found = [_status(path, "")]
    return web.json_response({"FileStatuses": {"FileStatus": found}})


def _open(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    with path.open("rb") as file:
        file.seek(int(request.query.get("offset", "0")))
        length = request.query.get("length")
        return web.Response(body=file.read(int(length)) if length else file.read())


def _create(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    if request.query.get("overwrite", "true") != "true" and path.exists():
        raise FileExistsError
    if "data" not in request.query:
        where = request.url.update_query(data="true")
        return web.Response(status=307, headers={"Location": str(where)})
    path.parent.mkdir(parents=True, exist_ok=True)
    number, part = tempfile.mkstemp(dir=folder.parent)
    with os.fdopen(number, "wb") as file:
        file.write(body)
    os.replace(part, path)
    return web.Response(status=201)


def _make(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    path.mkdir(parents=True, exist_ok=True)
    return web.json_response({"boolean": True})


def _rename(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    target = folder / request.query["destination"].strip("/")
    if target.is_dir():
        target = target / path.name
    fine = path.exists() and not target.exists() and target.parent.is_dir()
    if fine:
        path.rename(target)
    return web.json_response({"boolean": fine})


def _delete(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    there = path.exists()
    if path.is_dir():
        shutil.rmtree(path)
    elif there:
        path.unlink()
    return web.json_response({"boolean": there})


def _done(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    return web.Response(status=200)


def _blocks(request: web.Request, path: Path, folder: Path, body: bytes) -> web.Response:
    return web.json_response({"BlockLocations": {"BlockLocation": []}})


_OPERATIONS: dict[str, Callable[[web.Request, Path, Path, bytes], web.Response]] = {
    "GETFILESTATUS": _get_status,
    "LISTSTATUS": _list,
    "OPEN": _open,
    "CREATE": _create,
    "MKDIRS": _make,
    "RENAME": _rename,
    "DELETE": _delete,
    "SETPERMISSION": _done,
    "SETTIMES": _done,
    "GETFILEBLOCKLOCATIONS": _blocks,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
