"""Files under many writers, some of them killed: readers see a whole file."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from forked import paths

from memonger.util.files import write_whole

WRITER = """
import sys
from memonger.util.files import write_whole
print("writing", flush=True)
while True:
    write_whole(sys.argv[1], sys.argv[2] * 200000)
"""


def test_threads_write_one_file_at_once(tmp_path):
    path = tmp_path / "file"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: write_whole(str(path), str(n % 8) * 50000), range(40)))
    text = path.read_text()
    assert len(text) == 50000 and len(set(text)) == 1
    assert os.listdir(tmp_path) == ["file"]


def test_killed_writers_leave_a_whole_file_and_their_remains_go(tmp_path):
    path = tmp_path / "file"
    write_whole(str(path), "old")
    environment = {**os.environ, "PYTHONPATH": paths(os.environ)}
    for trial in range(4):
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter],
                                    stdout=subprocess.PIPE, env=environment) for letter in "ab"]
        for writer in writers:
            writer.stdout.readline()
        time.sleep(0.02 * trial)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
        text = path.read_text()
        assert text == "old" or (len(text) == 200000 and len(set(text)) == 1)
    long_ago = time.time() - 7200
    (tmp_path / ".file.0123.part").write_text("of a writer that was killed")
    (tmp_path / ".file.4567.part").write_text("of a writer that still writes")
    os.utime(tmp_path / ".file.0123.part", (long_ago, long_ago))
    write_whole(str(path), "new")
    assert path.read_text() == "new"
    left = set(os.listdir(tmp_path))
    assert ".file.0123.part" not in left and ".file.4567.part" in left
