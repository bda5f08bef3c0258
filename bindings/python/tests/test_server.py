"""Servers in this process."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request

import pytest

import thalweg as tw

TICKS = """
CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100', 'fields.n.kind' = 'sequence',
  'fields.n.start' = '1', 'fields.n.end' = '1000000');
CREATE TABLE out (n BIGINT) WITH ('connector' = 'blackhole');
"""


def test_a_server_runs_jobs_and_continues_them_when_it_is_started_again(tmp_path):
    with tw.serve(tmp_path / "data", listen="127.0.0.1:0") as server:
        assert server.is_running and server.problems == []
        with urllib.request.urlopen(server.url + "/") as page:
            assert page.status == 200
        first_token = server.token
        assert server.page == f"{server.url}/#token={first_token}" and first_token not in repr(server)
        db = server.connect()
        db.sql(TICKS)
        job = db.start("copy", "INSERT INTO out SELECT n FROM ticks")
        assert job.state == "running"
        with pytest.raises(tw.Error, match="has the data directory"):
            tw.serve(tmp_path / "data", listen="127.0.0.1:0")
    assert not server.is_running
    with tw.serve(tmp_path / "data", listen="127.0.0.1:0") as again:
        job = again.connect().job("copy")
        end = time.monotonic() + 60
        while job.state != "running":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert again.token != first_token
        with pytest.raises(tw.Error):
            tw.connect(again.url, token=first_token).jobs


def test_an_option_that_does_not_exist_is_a_mistake(tmp_path):
    with pytest.raises(tw.SqlError, match="did you mean 'workers'"):
        tw.serve(tmp_path, listen="127.0.0.1:0", options={"worker": "1"})
    with pytest.raises(tw.Error, match="tokens would cross the network"):
        tw.serve(tmp_path, listen="0.0.0.0:0")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_ctrl_c_ends_the_wait_and_the_end_of_the_program_ends_the_server(tmp_path):
    program = (
        "import os, signal, threading, time, sys, thalweg as tw\n"
        "server = tw.serve(sys.argv[1], listen='127.0.0.1:0')\n"
        "pressed = []\n"
        "def press():\n"
        "    time.sleep(0.5); pressed.append(time.monotonic()); os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=press).start()\n"
        "try:\n"
        "    server.wait()\n"
        "except KeyboardInterrupt:\n"
        "    print(time.monotonic() - pressed[0], server.is_running)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    waited, is_running = done.stdout.split()
    assert float(waited) < 5 and is_running == "True"
