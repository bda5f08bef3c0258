"""Notebooks: `%%tw`, results that change while they are shown, and a kernel that stays free."""

from __future__ import annotations

import queue
import time

import pytest

import thalweg as tw

pytest.importorskip("IPython")

from thalweg.notebook import LiveTable  # noqa: E402

TICKS = "CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '200', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{end}')"

ENDLESS = "CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '200')"


def until(is_there, seconds=30):
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.fixture
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "thalweg")
    yield shell
    InteractiveShell.clear_instance()


def test_a_query_that_ends_is_a_result(shell):
    pa = pytest.importorskip("pyarrow")
    shell.user_ns["orders"] = pa.table({"item": ["tea", "tea"], "amount": [2, 3]})
    shell.user_ns["least"] = {"least": 3}
    cell = "SELECT item, amount FROM orders WHERE amount >= ${least}"
    result = shell.run_cell_magic("tw", "--table orders --params least --out found", cell)
    assert result.fetchall() == [("tea", 3)]
    assert shell.user_ns["found"] is result
    assert "<td>tea</td><td>3</td>" in result._repr_html_()


def test_declarations_stay_for_later_cells_and_show_nothing(shell):
    assert shell.run_cell_magic("tw", "", "CREATE VIEW answers AS SELECT 42 AS answer") is None
    assert shell.run_cell_magic("tw", "", "SELECT answer FROM answers").fetchall() == [(42,)]
    db = shell.user_ns["own"] = tw.connect()
    db.sql("CREATE VIEW others AS SELECT 7 AS n")
    assert shell.run_cell_magic("tw", "--db own", "SELECT n FROM others").fetchall() == [(7,)]


def test_a_mistake_shows_its_place_and_no_frames(shell, capsys):
    done = shell.run_cell("%%tw\nSELECT amont FROM (VALUES (1)) AS t (amount)")
    assert isinstance(done.error_in_exec, tw.SqlError)
    shown = capsys.readouterr().out
    assert "SELECT amont FROM" in shown and "^^^^^" in shown and "amount" in shown
    assert "Traceback" not in shown and ".py" not in shown


def test_a_wrong_option_is_an_exception_and_does_not_end_the_kernel(shell):
    with pytest.raises(ValueError, match="usage: %%tw"):
        shell.run_cell_magic("tw", "--nothing", "SELECT 1")
    with pytest.raises(NameError, match="no variable nothing"):
        shell.run_cell_magic("tw", "--table nothing", "SELECT 1")


def test_a_query_that_does_not_end_runs_in_the_background_until_it_is_stopped(shell):
    shell.run_cell_magic("tw", "", ENDLESS)
    live = shell.run_cell_magic("tw", "", "SELECT n FROM ticks WHERE MOD(n, 2) = 0")
    assert isinstance(live, LiveTable) and live.state == "running"
    until(lambda: live.rows)
    assert all(n % 2 == 0 for (n,) in live.rows) and len(live.rows) <= 20
    assert "running" in live._repr_html_()
    again = shell.run_cell_magic("tw", "", "SELECT n FROM ticks WHERE MOD(n, 2) = 0")
    assert live.wait(30) and live.state == "stopped"
    again.stop()
    assert again.wait(30)


def test_a_result_that_is_updated_shows_its_present_rows():
    db = tw.connect()
    db.sql(TICKS.format(end=300))
    live = LiveTable(db.sql("SELECT MOD(n, 3) AS k, COUNT(*) AS n FROM ticks GROUP BY MOD(n, 3)"))
    assert live.wait(60) and live.state == "finished"
    assert sorted(live.rows) == [(0, 100), (1, 100), (2, 100)]


def test_a_live_table_says_what_it_has_failed_with():
    db = tw.connect()
    db.sql(TICKS.format(end=10**9))
    live = LiveTable(db.sql("SELECT 1 / (n - 20) AS n FROM ticks"))
    assert live.wait(60) and live.state == "failed"
    assert "division by zero" in live._repr_html_()


def test_inserts_run_as_a_job(shell, tmp_path):
    db = shell.user_ns["db"] = tw.connect(tmp_path)
    db.sql(TICKS.format(end=100))
    db.sql("CREATE TABLE out (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv')")
    live = shell.run_cell_magic("tw", "--db db --job copy --snapshots state", "INSERT INTO out SELECT n FROM ticks")
    assert live.wait(60) and live.state == "finished"
    assert "<td>ticks</td>" in live._repr_html_() or "ticks" in live._repr_html_()
    assert sorted(int(line) for line in (tmp_path / "out").read_text().split()) == list(range(1, 101))


class Kernel:
    """A kernel in a process of its own, and what it sends."""

    def __init__(self):
        client = pytest.importorskip("jupyter_client")
        self.manager, self.client = client.manager.start_new_kernel(kernel_name="python3", startup_timeout=120)

    def run(self, code, timeout=60):
        """The messages of a cell until it has ended."""
        number = self.client.execute(code)
        messages = []
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") == number:
                messages.append(message)
                if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                    return messages
        raise AssertionError(f"a cell has not ended: {code}")


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


def text_of(messages):
    return "".join(message["content"].get("text", "") for message in messages if message["msg_type"] == "stream")


def test_a_kernel_is_free_while_a_table_is_live(kernel):
    pytest.importorskip("ipykernel")
    kernel.run("%load_ext thalweg\nimport thalweg.notebook\nthalweg.notebook._widget = lambda live: None")
    kernel.run("%%tw\n" + ENDLESS)
    begun = time.monotonic()
    shown = kernel.run("%%tw --out live\nSELECT n FROM ticks")
    assert any(m["msg_type"] == "display_data" and "text/html" in m["content"]["data"] for m in shown)
    assert text_of(kernel.run("print(6 * 7)")) == "42\n"
    assert time.monotonic() - begun < 30
    updates = []
    until(lambda: updates.append(kernel.client.get_iopub_msg(timeout=30)) or updates[-1]["msg_type"] == "update_display_data")
    assert "<td>" in updates[-1]["content"]["data"]["text/html"]
    assert text_of(kernel.run("live.stop(); print(live.wait(30), live.state)")) == "True stopped\n"


def test_a_kernel_that_is_interrupted_ends_the_query(kernel):
    kernel.run("import thalweg as tw, time\ndb = tw.connect()\ndb.sql(\"" + TICKS.format(end=10**9) + '")')
    number = kernel.client.execute("db.sql('SELECT n FROM ticks WHERE n < 0').fetchall()")
    time.sleep(1)
    pressed = time.monotonic()
    kernel.manager.interrupt_kernel()
    reply = kernel.client.get_shell_msg(timeout=30)
    while reply["parent_header"].get("msg_id") != number:
        reply = kernel.client.get_shell_msg(timeout=30)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    # The goal is a tenth of a second; a busy machine may take longer.
    assert time.monotonic() - pressed < 5


def test_a_live_table_has_a_button_where_anywidget_is_there():
    pytest.importorskip("anywidget")
    from thalweg.notebook import _widget

    db = tw.connect()
    db.sql(TICKS.format(end=10**9))
    live = LiveTable(db.sql("SELECT n FROM ticks"))
    widget = _widget(live)
    widget._handle_custom_msg("stop", [])
    assert live.wait(30) and live.state == "stopped"
    widget.show(live._repr_html_())
    assert widget.is_over and "stopped" in widget.html
