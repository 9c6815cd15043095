"""CURVE key pairs in files: made, written so that only their owner reads them, and read again.

    ticker.key   name, public and secret key; mode 0600, and refused when others may read it (as ssh does)
    ticker.pub   name and public key; for the allow list of the server, and to know a server by

Both are TOML. Keys are text, 40 characters of Z85.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from hullcast.network.security.rights import is_public_key
from hullcast.network.wire.errors import BadSetting

SECRET_SUFFIX, PUBLIC_SUFFIX = ".key", ".pub"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
LARGEST_BYTES = 10_000  # of a key file: a wrong path is noticed before it is read

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair; the secret half never shows in a text."""

    name: str
    public: str
    secret: str = field(repr=False)


def make_pair(name: str) -> KeyPair:
    """A new pair, from the system's source of chance."""
    if not _NAME.fullmatch(name):
        raise BadSetting(
            "name", name, "must be 1 to 64 letters, digits or _ . @ -, starting with a letter, a digit or _"
        )
    public, secret = zmq.curve_keypair()
    return KeyPair(name, public.decode(), secret.decode())


def write_pair(pair: KeyPair, folder: Path, *, force: bool = False) -> tuple[Path, Path]:
    """Write NAME.key and NAME.pub; the paths. Files that exist are left alone, unless `force`."""
    secret_path, public_path = (folder / f"{pair.name}{suffix}" for suffix in (SECRET_SUFFIX, PUBLIC_SUFFIX))
    public_lines = f'name = "{pair.name}"\npublic = "{pair.public}"\n'
    secret_text = (
        f"# Key pair of {pair.name}. Whoever reads this file can act as {pair.name}; others get {public_path.name}.\n"
        f'{public_lines}secret = "{pair.secret}"\n'
    )
    if not force:
        for path in (secret_path, public_path):
            if path.exists():
                raise BadSetting("out", str(path), "it exists already; choose another --name, or --force to replace it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(secret_path, secret_text, 0o600, force)
        _write(public_path, f"# Public key of {pair.name}; not a secret.\n{public_lines}", 0o644, force)
    except OSError as error:
        raise BadSetting("out", str(error.filename or folder), f"cannot write: {error.strerror}") from error
    return secret_path, public_path


def load_pair(path: Path | str) -> KeyPair:
    """Read NAME.key. Raises BadSetting: not there, readable by others, or not a pair."""
    content = _read(Path(path), private=True)
    name, public, secret = (content.get(key) for key in ("name", "public", "secret"))
    if not isinstance(secret, str) or not is_public_key(secret):
        hint = "; this looks like the public file, the pair is in the .key file" if public is not None else ""
        raise BadSetting("key", str(path), f"there is no secret key in it{hint}")
    if public != zmq.curve_public(secret.encode()).decode():
        raise BadSetting("key", str(path), "its public and its secret key do not belong together; make a new pair")
    return KeyPair(name if isinstance(name, str) else Path(path).stem, str(public), secret)


def load_public(given: Path | str, *, setting: str = "key") -> str:
    """A public key from its text, or from NAME.pub (or NAME.key, whose secret half is then not looked at)."""
    if is_public_key(str(given)) and not Path(given).exists():
        return str(given)
    public = _read(Path(given), private=False, setting=setting).get("public")
    if not isinstance(public, str) or not is_public_key(public):
        raise BadSetting(setting, str(given), "there is no public key in it")
    return public


def _write(path: Path, text: str, mode: int, force: bool) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    target = path.with_name(f".{path.name}.{os.getpid()}") if force else path
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    if force:
        target.replace(path)


def _read(path: Path, *, private: bool, setting: str = "key") -> dict[str, object]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode  # of the file that is open, not of what has its name a moment later
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        hint = "; `hullcast keygen` makes one" if isinstance(error, FileNotFoundError) else ""
        raise BadSetting(setting, str(path), f"cannot read it: {error.strerror}{hint}") from error
    try:
        if len(data) > LARGEST_BYTES:
            raise ValueError("it is far too long")
        content = tomllib.loads(data.decode())
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are such
        raise BadSetting(setting, str(path), f"this is not a key file: {error}") from error
    if private and "secret" in content and stat.S_IMODE(mode) & OTHERS:
        raise BadSetting(setting, str(path), f"others may read this secret; run `chmod 600 {path}`")
    return content
