r"""Simulated power cuts: record the writes of a process, and rebuild the disk at any moment.

A C shim between a process and its C library writes each change of a file below one folder to a
tape, in order: bytes written, truncations, names created and removed, flushes. After the process
has ended, a state of the disk is built from the beginning of the tape: flushed data is present;
each write that was not flushed is present, absent or torn, at random.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static int tape = -1;
static const char *folder(void) { return getenv("POWER_FOLDER"); }
static ssize_t (*really_write)(int, const void *, size_t);
static void put(char kind, const char *path, uint64_t at, const void *data, uint64_t size) {
    if (!really_write) really_write = dlsym(RTLD_NEXT, "write");
    if (tape < 0)
        tape = open(getenv("POWER_TAPE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    uint32_t length = strlen(path);
    really_write(tape, &kind, 1);
    really_write(tape, &length, 4);
    really_write(tape, &at, 8);
    really_write(tape, &size, 8);
    really_write(tape, path, length);
    if (data) really_write(tape, data, size);
}
static int named(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0 || !folder()) return 0;
    path[n] = 0;
    return !strncmp(path, folder(), strlen(folder()));
}
static int full(const char *given, char *path) {
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", given);
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : given;
    if (slash) *slash = 0;
    char *real = realpath(slash ? parent : ".", NULL);
    if (!real) return 0;
    snprintf(path, PATH_MAX, "%s/%s", real, name);
    free(real);
    return folder() && !strncmp(path, folder(), strlen(folder()));
}
#define WRAPPED(kind, call, at, data, size) \
    char path[PATH_MAX]; \
    int ours = named(fd, path); \
    if (ours) pthread_mutex_lock(&alone); \
    __typeof__(call) found = call; \
    if (ours) { if (found >= 0) put(kind, path, at, data, size); pthread_mutex_unlock(&alone); } \
    return found;
ssize_t write(int fd, const void *data, size_t size) {
    if (!really_write) really_write = dlsym(RTLD_NEXT, "write");
    WRAPPED('w', really_write(fd, data, size), lseek(fd, 0, SEEK_CUR) - found, data, found)
}
#define PWRITE(name, offset) \
    ssize_t name(int fd, const void *data, size_t size, offset at) { \
        ssize_t (*really)(int, const void *, size_t, offset) = dlsym(RTLD_NEXT, #name); \
        WRAPPED('w', really(fd, data, size, at), at, data, found) \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
#define CUT(name, offset) \
    int name(int fd, offset size) { \
        int (*really)(int, offset) = dlsym(RTLD_NEXT, #name); \
        WRAPPED('t', really(fd, size), size, NULL, 0) \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)
#define FLUSH(name) \
    int name(int fd) { \
        int (*really)(int) = dlsym(RTLD_NEXT, #name); \
        WRAPPED('f', really(fd), 0, NULL, 0) \
    }
FLUSH(fsync)
FLUSH(fdatasync)
int unlink(const char *given) {
    char path[PATH_MAX];
    int (*really)(const char *) = dlsym(RTLD_NEXT, "unlink");
    int ours = full(given, path), found = really(given);
    if (ours && !found) {
        pthread_mutex_lock(&alone);
        put('u', path, 0, NULL, 0);
        pthread_mutex_unlock(&alone);
    }
    return found;
}
int rename(const char *from, const char *to) {
    char path[PATH_MAX], other[PATH_MAX];
    int (*really)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    int ours = full(from, path) && full(to, other), found = really(from, to);
    if (ours && !found) {
        pthread_mutex_lock(&alone);
        put('r', path, 0, other, strlen(other));
        pthread_mutex_unlock(&alone);
    }
    return found;
}
"""

_HEAD = struct.Struct("<cIQQ")
_SECTOR = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the tape: w(rite), t(runcate), f(lush), u(nlink) or r(ename)."""

    kind: str
    path: str
    at: int
    data: bytes


def compiled(folder: Path) -> Path | None:
    """Return the compiled shim, or None if there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    source, shim = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM, encoding="ascii")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", shim, source, "-ldl", "-lpthread"],
        check=True,
    )
    return shim


def played(tape: Path) -> Iterator[Change]:
    """Return the entries of a tape, in order."""
    content, at = tape.read_bytes(), 0
    while at + _HEAD.size <= len(content):
        kind, length, place, size = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        path = content[at : at + length].decode()
        at += length
        data = content[at : at + size] if kind in b"wr" else b""
        at += len(data)
        yield Change(kind=kind.decode(), path=path, at=place, data=data)


@dataclass(slots=True)
class File:
    """The content of a file on the disk, and the writes since its last flush."""

    flushed: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def flush(self) -> None:
        for change in self.pending:
            apply(self.flushed, change, change.data)
        self.pending.clear()

    def after_cut(self, coins: random.Random) -> bytes:
        content = bytearray(self.flushed)
        for change in self.pending:
            fate = coins.choice(["kept", "lost", "torn"])
            if fate == "kept" or (fate == "torn" and change.kind == "t"):
                apply(content, change, change.data)
            elif fate == "torn":
                # Write some of its sectors, in any order.
                for start in range(0, len(change.data), _SECTOR):
                    if coins.random() < 0.5:
                        sector = replace(change, at=change.at + start)
                        apply(content, sector, change.data[start : start + _SECTOR])
        return bytes(content)


def apply(content: bytearray, change: Change, data: bytes) -> None:
    if change.kind == "t":
        content[change.at :] = bytes(max(0, change.at - len(content)))
        return
    content.extend(bytes(max(0, change.at - len(content))))
    content[change.at : change.at + len(data)] = data


def cut_after(changes: list[Change], coins: random.Random) -> dict[str, bytes]:
    """Return the files as a power cut right after the last of ``changes`` may leave them."""
    files: dict[str, File] = {}
    for change in changes:
        match change.kind:
            case "f":
                if change.path in files:  # and is not a folder
                    files[change.path].flush()
            case "u":
                # Renames and removals are durable: journals of file systems keep their order.
                files.pop(change.path, None)
            case "r":
                files[change.data.decode()] = files.pop(change.path, File())
            case _:
                files.setdefault(change.path, File()).pending.append(change)
    return {path: file.after_cut(coins) for path, file in files.items()}
