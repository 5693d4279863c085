"""How files are written: all or nothing, without rubbish, without copies of the weights."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.serde.programs import saved_bytes, small
from tintype.serde.archive import ALIGNMENT, Archive, Entry, bytes_entry, write_archive
from tintype.serde.atomic import replacing
from tintype.serde.mapping import map_path


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_entries_begin_where_memory_pages_of_tensors_may(tmp_path: Path) -> None:
    archive = Archive(bytearray(saved_bytes(small(), extra_files={"a": "b", "long name " * 9: "c"})))
    assert all(archive.place(name).begin % ALIGNMENT == 0 for name in archive.names())


def test_other_tools_can_open_a_file(tmp_path: Path) -> None:
    tintype.save(small(), tmp_path / "model.tt")
    with zipfile.ZipFile(tmp_path / "model.tt") as archive:
        assert archive.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())


def test_entries_beyond_the_limits_of_plain_zip_files(tmp_path: Path) -> None:
    """More than 4 GB before an entry and in one; the file has holes, so that it takes no room."""
    path, size = tmp_path / "large", (1 << 32) + 5

    class Holes(io.FileIO):
        """Skips what is nothing but zeros."""

        def write(self, piece: Any) -> int:
            if len(piece) >= 1 << 20:
                self.seek(len(piece), os.SEEK_CUR)
                return len(piece)
            return super().write(piece) or 0

    zeros = bytes(1 << 26)
    pieces = [zeros] * 64 + [b"abcde"]
    with Holes(path, "w+") as file:
        write_archive(file, [Entry("large", size, lambda: pieces), bytes_entry("after", b"xyz")])  # type: ignore[arg-type]
    archive = Archive(map_path(path))
    place = archive.place("large")
    assert place.size == size
    assert bytes(archive.view[place.begin + size - 5 : place.begin + size]) == b"abcde"
    assert bytes(archive.content("after")) == b"xyz"
    assert archive.place("after").begin > 1 << 32


def test_a_failing_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    path.write_bytes(b"the old file")
    program = small()
    program._constants["odd"] = object()
    with pytest.raises(tintype.UnsavableError):
        tintype.save(program, path)
    with pytest.raises(RuntimeError, match="in the middle"), replacing(path) as file:
        file.write(b"half of the new")
        raise RuntimeError("in the middle")
    assert path.read_bytes() == b"the old file"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: writing fails in the same place."""
    path = tmp_path / "model.tt"
    path.write_bytes(b"the old file")
    done = run(
        """
        import resource, signal, sys, torch, tintype
        program = tintype.export(torch.nn.Linear(1000, 1000), (torch.ones(1, 1000),))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            tintype.save(program, sys.argv[1])
        except OSError as error:
            print("OSError", error.errno)
        """,
        path,
    )
    assert done.stdout.startswith("OSError"), done.stderr
    assert path.read_bytes() == b"the old file"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.tt", tmp_path / "link.tt"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    tintype.save(small(), link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes() == saved_bytes(small())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tintype.save(small(), tmp_path / "nowhere" / "model.tt")


def test_saving_takes_no_copy_of_the_weights(tmp_path: Path) -> None:
    done = run(
        """
        import resource, sys, torch, tintype
        model = torch.nn.Sequential(*[torch.nn.Linear(2000, 2000) for _ in range(12)])  # 190 MB
        program = tintype.export(model, (torch.ones(1, 2000),))
        tintype.save(tintype.export(torch.nn.ReLU(), (torch.ones(1),)), sys.argv[1])  # everything is imported
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tintype.save(program, sys.argv[1])
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        """,
        tmp_path / "model.tt",
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 24, "MiB more than before; the largest tensor has 15"


def test_loading_maps_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    with torch.device("meta"):
        model = torch.nn.Sequential(*[torch.nn.Linear(4000, 4000) for _ in range(4)])  # 256 MB
    tintype.save(tintype.export(model.to_empty(device="cpu"), (torch.ones(1, 4000),)), path)
    done = run(
        """
        import resource, sys, torch, tintype
        tintype.save(tintype.export(torch.nn.ReLU(), (torch.ones(1),)), sys.argv[1] + ".small")
        tintype.load(sys.argv[1] + ".small")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        program = tintype.load(sys.argv[1])
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        """,
        path,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 32, "MiB that loading took"


def test_a_file_that_is_replaced_does_not_change_what_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    tintype.save(small(), path)
    program = tintype.load(path)
    before = program.state_dict["weight"].detach().clone()
    other = small()
    with torch.no_grad():
        other.state_dict["weight"].fill_(7.0)
    tintype.save(other, path)
    assert torch.equal(program.state_dict["weight"], before)
    assert bool((tintype.load(path).state_dict["weight"] == 7.0).all())


def test_progress_is_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tintype.save(small(), tmp_path / "model.tt", progress=True)
    assert "saving" in capsys.readouterr().err
    tintype.save(small(), tmp_path / "model.tt")
    assert capsys.readouterr().err == ""
    assert (tmp_path / "model.tt").read_bytes() == saved_bytes(small())


# --- places that are no files ---------------------------------------------------------------------------------------


def test_a_device_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    link = tmp_path / "null.tt"
    link.symlink_to("/dev/null")
    before = os.stat("/dev/null")
    tintype.save(small(), link)
    tintype.save(small(), "/dev/null")
    after = os.stat("/dev/null")
    assert (after.st_mode, after.st_rdev, after.st_ino) == (before.st_mode, before.st_rdev, before.st_ino)


def test_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "pipe.tt"
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    tintype.save(small(), path)
    reader.join(20)
    assert got == [saved_bytes(small())]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(tintype.TintypeError, match="is a folder"):
        tintype.save(small(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_that_take_a_part_at_a_time() -> None:
    class Slow(io.RawIOBase):
        def __init__(self, most: int | None) -> None:
            self.content = b""
            self.most = most

        def writable(self) -> bool:
            return True

        def write(self, piece: Any) -> int | None:
            if self.most is None:
                return None
            self.content += bytes(piece[: self.most])
            return min(len(piece), self.most)

    file = Slow(1000)
    tintype.save(small(), file)  # type: ignore[arg-type]
    assert file.content == saved_bytes(small())
    with pytest.raises(BlockingIOError):
        tintype.save(small(), Slow(None))  # type: ignore[arg-type]
    with pytest.raises(OSError, match="took 0 of"):
        tintype.save(small(), Slow(0))  # type: ignore[arg-type]


def test_long_names_and_names_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 252 + ".tt")
    tintype.save(small(), path)
    assert path.read_bytes() == saved_bytes(small())
    odd = os.fsencode(tmp_path) + b"/model-\xff.tt"
    tintype.save(small(), odd)
    assert saved_bytes(tintype.load(odd)) == path.read_bytes()


def test_a_file_system_without_nameless_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    path = tmp_path / "model.tt"
    tintype.save(small(), path)
    with pytest.raises(RuntimeError, match="in the middle"), replacing(path):
        raise RuntimeError("in the middle")
    assert path.read_bytes() == saved_bytes(small())
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_save_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    done = run(
        """
        import os, signal, sys
        from pathlib import Path
        from tintype.serde.atomic import replacing
        with replacing(Path(sys.argv[1])) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["", b"", "a\0b", None, 3.5, 5, io.StringIO()], ids=lambda file: type(file).__name__)
def test_what_is_no_file(file: Any) -> None:
    with pytest.raises(tintype.TintypeError, match=r"no name of a file|a file is a path or"):
        tintype.save(small(), file)
    with pytest.raises(tintype.TintypeError, match=r"no name of a file|a file is a path or"):
        tintype.load(file)


# --- checksums ------------------------------------------------------------------------------------------------------


def test_damaged_weights_are_found_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    tintype.save(small(), path)
    assert torch.equal(tintype.load(path, verify=True).state_dict["weight"], small().state_dict["weight"])
    content = bytearray(path.read_bytes())
    weight = small().state_dict["weight"].detach().numpy().tobytes()
    content[content.index(weight) + 5] ^= 1
    path.write_bytes(content)
    tintype.load(path)  # weights are mapped, not read
    with pytest.raises(tintype.TintypeError, match=r"weights.safetensors.*checksum differs"):
        tintype.load(path, verify=True)
