"""Draws the pictures of docs/images that explain an idea: no measurements, no data.

    python3 scripts/draw_pictures.py [FOLDER]

Each is one SVG for light and dark pages (prefers-color-scheme). Standard library only.
"""

import html
import pathlib
import sys

IMAGES = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images"

STYLE = """
text{font:13px system-ui,sans-serif;fill:#1f2d3d}
.s{font-size:11.5px;fill:#5a6b7d}.b{font-weight:600}.t{font-size:11.5px}.m{font:600 13px ui-monospace,monospace}
.on{fill:#fff;font-weight:600;font-size:12px}
.bg{fill:#fff}.line{stroke:#9fb1c3;fill:none}.faint{stroke:#dbe3eb;fill:none}.dash{stroke:#9fb1c3;stroke-dasharray:4 4;fill:none}
.blue{fill:#2f6ea5}.green{fill:#3f8f4f}.orange{fill:#c2621b}.grey{fill:#8796a6}
.blueline{stroke:#2f6ea5;fill:none;stroke-width:1.6}.orangeline{stroke:#c2621b;fill:none;stroke-width:1.6}
.strong{stroke:#1f2d3d;fill:none;stroke-width:2.6;stroke-linejoin:round}
.cut{stroke:#c2621b;fill:none;stroke-width:3;stroke-linecap:round}.cuttext{fill:#a84f10}
.box{fill:#eef4fa;stroke:#8fb0cd}.stage{fill:#f4f6f9;stroke:#9fb1c3}.done{fill:#f3f5f7;stroke:#c7d1da}
.hold{fill:#fbeadb;stroke:#d69a66}.worker{fill:#1f2d3d}.workertext{fill:#fff;font:600 10px system-ui,sans-serif}
@media (prefers-color-scheme:dark){text{fill:#e3eaf2}.s{fill:#a3b3c4}.bg{fill:#18212c}.on{fill:#0f1720}
.line{stroke:#63788d}.faint{stroke:#2c3947}.dash{stroke:#63788d}
.blue{fill:#7db8ea}.green{fill:#83c98e}.orange{fill:#f0a066}.grey{fill:#8796a6}
.blueline{stroke:#7db8ea}.orangeline{stroke:#f0a066}.strong{stroke:#e3eaf2}.cut{stroke:#f0a066}.cuttext{fill:#f5b585}
.box{fill:#20364b;stroke:#4f7ba1}.stage{fill:#202b38;stroke:#63788d}.done{fill:#1d2631;stroke:#3b4a5a}
.hold{fill:#4a331f;stroke:#c58b58}.worker{fill:#e3eaf2}.workertext{fill:#18212c}}
"""


class Picture:
    """An SVG that grows element by element."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def text(self, x, y, text, kind="", anchor="start"):
        kind = f' class="{kind}"' if kind else ""
        anchor = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{kind}{anchor}>{html.escape(text)}</text>')

    def box(self, x, y, width, height, kind, round_=4):
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_}"/>')

    def dot(self, x, y, radius, kind):
        self.parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def path(self, points, kind):
        steps = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="{kind}" d="M{steps}"/>')

    def arrow(self, points, kind="line"):
        """The last part of the path is horizontal or vertical."""
        self.path(points, kind)
        (x0, y0), (x, y) = points[-2:]
        if x0 == x:
            back = -6 if y > y0 else 6
            self.path([(x - 3.5, y + back), (x, y), (x + 3.5, y + back)], kind)
        else:
            back = -6 if x > x0 else 6
            self.path([(x + back, y - 3.5), (x, y), (x + back, y + 3.5)], kind)

    def worker(self, x, y, name):
        self.box(x, y, 22, 14, "worker", 7)
        self.text(x + 11, y + 10.5, name, "workertext", "middle")

    def write(self, folder, name):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">'
                f"<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style>\n"
                f'<rect class="bg" width="{self.width}" height="{self.height}" rx="6"/>\n')
        (folder / name).write_text(head + "\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")


def watermarks():
    """Two splits, their watermarks and the joint one; a split falls silent and then idle."""
    picture = Picture(720, 396, "Rows of two splits, the watermark of each split, and the joint watermark, which is their minimum. "
                                "A silent split holds it back until it is idle.")
    left, right, bottom, second = 86, 704, 318, 1.42

    def x(arrival):
        return left + 16 + arrival * 33.5

    def y(seconds):
        return bottom - 8 - seconds * second

    picture.text(left - 8, 20, "event time", "s", "end")
    picture.text(right, bottom + 20, "arrival", "s", "end")
    picture.arrow([(left, bottom), (right, bottom)])
    picture.arrow([(left, bottom), (left, 12)])
    for minute in range(1, 4):
        picture.path([(left, y(60 * minute)), (right, y(60 * minute))], "dash")
        picture.text(left - 8, y(60 * minute) + 4, f"09:0{minute}", "s", "end")

    # (arrival, split, seconds behind 09:00); the watermark is 20 s behind the newest row of its split.
    rows = [(0, 1, 35), (1, 2, 28), (2, 1, 62), (3, 2, 70), (4, 1, 50), (5, 2, 55), (6, 1, 96), (7, 2, 84),
            (8, 1, 118), (9, 1, 140), (10, 1, 128), (11, 1, 165), (14, 1, 182), (15, 1, 196), (17, 1, 208)]
    newest, joint, lines = {1: None, 2: None}, [], {1: [], 2: []}
    idle_from = 13
    for arrival in range(18):
        for at, split, seconds in rows:
            if at == arrival:
                newest[split] = max(newest[split] or 0, seconds)
        for split in (1, 2):
            if newest[split] is not None and not (split == 2 and arrival > idle_from):
                lines[split].append((arrival, newest[split] - 20))
        awake = [value for split, value in newest.items() if value is not None and not (split == 2 and arrival >= idle_from)]
        if len(awake) == 2 or arrival >= idle_from:
            joint.append((arrival, min(awake) - 20))

    def steps(points, shift):
        path = []
        for arrival, value in points:
            if path:
                path.append((x(arrival), path[-1][1]))
            path.append((x(arrival), y(value) + shift))
        path.append((x(points[-1][0] + 0.6), path[-1][1]))
        return path

    held = [(x(9.2), y(64) + 1), (x(13), y(64) + 1)]
    picture.path(steps(lines[1], 0), "blueline")
    picture.path(steps(lines[2], 0), "orangeline")
    picture.path(steps(joint, 2), "strong")
    for arrival, split, seconds in rows:
        picture.dot(x(arrival), y(seconds), 4.5, "blue" if split == 1 else "orange")
    picture.text((held[0][0] + held[1][0]) / 2, held[0][1] + 18, "split 2 is silent and holds the results", "t cuttext", "middle")
    picture.text(x(13) + 9, y(78), "split 2 is idle:", "t b")
    picture.text(x(13) + 9, y(78) + 15, "the watermark is free", "t")
    # Windows close where the joint watermark passes their ends.
    picture.path([(x(7), y(22)), (x(7), y(57))], "line")
    picture.text(x(7) + 8, y(22) + 2, "09:00 to 09:01 closes", "t")
    picture.dot(x(7), y(60), 4, "grey")
    picture.text(x(13) + 9, y(112), "09:01 to 09:02 closes", "t")
    picture.dot(x(13), y(120), 4, "grey")

    legend, below = left, bottom + 46
    for kind, text, width in [("blue", "rows of split 1, its watermark", 226), ("orange", "rows of split 2, its watermark", 226)]:
        picture.dot(legend, below - 4, 4.5, kind)
        picture.path([(legend + 10, below - 4), (legend + 32, below - 4)], f"{kind}line")
        picture.text(legend + 40, below, text, "t")
        legend += width
    picture.path([(legend, below - 4), (legend + 32, below - 4)], "strong")
    picture.text(legend + 40, below, "that of the table", "t")
    picture.text(left - 8, below + 22, "A split's watermark is its newest row minus 20 s. The table's is the smaller one, and only moves up.", "s")
    return picture


def contracts():
    """What two runs over the same input write, for each contract."""
    picture = Picture(720, 392, "Two runs over the same rows. In epoch the rows between two watermarks come in any order; in arrival "
                                "both runs write the same sequence; in event_time also if rows arrive in another interleaving.")
    picture.text(150, 24, "rows arrive", "s")
    picture.text(434, 24, "the job writes", "s")

    def strip(left, top, tokens):
        place = left
        for token in tokens:
            if token == "|":
                picture.path([(place + 3, top - 3), (place + 3, top + 25)], "cut")
                place += 12
                continue
            label, kind = token
            if kind == "orange":
                picture.box(place, top, 24, 22, kind, 11)
            else:
                picture.box(place, top, 24, 22, kind, 4)
            picture.text(place + 12, top + 15.5, label, "on", "middle")
            place += 30
        return place

    def run(top, name, arrives, writes):
        picture.text(18, top + 15.5, name, "t s")
        end = strip(150, top, arrives)
        picture.arrow([(end + 6, top + 11), (418, top + 11)])
        strip(434, top, writes)

    def letters(text, kinds):
        found, kind = [], 0
        for letter in text:
            if letter == "|":
                kind += 1
                found.append("|")
            else:
                found.append((letter, kinds[kind]))
        return found

    def mixed(numbers):
        return [(str(number), "blue" if number % 2 else "orange") for number in numbers]

    epochs = ["blue", "green"]
    blocks = [
        (44, "epoch", "exact and complete; between two watermarks (bars) in any order",
         (letters("abc|def|", epochs), letters("abc|def|", epochs)), (letters("bac|fde|", epochs), letters("cab|dfe|", epochs))),
        (162, "arrival", "the sequence of one thread that takes row after row: the same bytes in both runs",
         (letters("abc|def|", epochs), letters("abc|def|", epochs)), (letters("abc|def|", epochs), letters("abc|def|", epochs))),
        (280, "event_time", "sorted inputs (two here) merge by time: the same bytes, whichever input is faster",
         (mixed([1, 3, 2, 5, 4, 6]), mixed([2, 4, 1, 6, 3, 5])), (mixed([1, 2, 3, 4, 5, 6]), mixed([1, 2, 3, 4, 5, 6]))),
    ]
    for top, name, promise, arrives, writes in blocks:
        picture.path([(18, top - 8), (702, top - 8)], "faint")
        picture.text(18, top + 12, name, "m")
        picture.text(116, top + 12, promise, "t")
        run(top + 28, "run 1, 2 workers", arrives[0], writes[0])
        run(top + 62, "run 2, 8 workers", arrives[1], writes[1])
    return picture


def epochs():
    """Three epochs in flight, in the containers of two operators, with workers on all of them."""
    picture = Picture(720, 390, "Three epochs in flight. Each operator has a container for each epoch, with its bundles and its end "
                                "watermark. Workers process bundles of all epochs; watermarks are consumed in order.")
    columns = [(474, "epoch 1", "watermark 09:01"), (292, "epoch 2", "watermark 09:02"), (110, "epoch 3", "open")]
    picture.text(18, 30, "input", "b")
    picture.text(18, 46, "newest left", "s")
    picture.path([(104, 60), (650, 60)], "line")
    for left, name, end in columns:
        for place in range(5):
            picture.dot(left + 22 + place * 26, 60, 5, "blue")
        picture.text(left + 74, 40, name, "b", "middle")
    for left, text in [(286, "09:02"), (468, "09:01")]:
        picture.path([(left, 48), (left, 72)], "cut")
        picture.text(left, 88, text, "t cuttext", "middle")
    picture.text(656, 64, "oldest", "s")

    def container(left, top, name, kind, bundles, watermark):
        picture.box(left, top, 160, 84, kind, 6)
        picture.text(left + 10, top + 18, name, "t b")
        for place, worker in enumerate(bundles):
            at = left + 10 + place * 36
            picture.box(at, top + 28, 28, 22, "blue", 3)
            if worker:
                picture.worker(at + 3, top + 44, worker)
        picture.text(left + 10, top + 76, watermark, "t cuttext" if "09:0" in watermark else "t s")

    for top, label, lines in [(112, "filter", "stateless"), (246, "window", "per key")]:
        picture.text(18, top + 36, label, "b")
        picture.text(18, top + 52, lines, "s")
    container(474, 112, "container 1: finished", "done", [], "has sent 09:01 on")
    container(292, 112, "container 2", "box", ["W2", ""], "end watermark 09:02")
    container(110, 112, "container 3: open", "box", ["W3", "", ""], "no end yet")
    container(474, 246, "container 1", "hold", [], "watermark 09:01: emits")
    picture.worker(484, 279, "W1")
    container(292, 246, "container 2", "box", ["W4"], "no end watermark yet")
    container(110, 246, "container 3: open", "box", [""], "no end yet")
    for left in (474, 292, 110):
        picture.arrow([(left + 80, 196), (left + 80, 244)])
    picture.arrow([(634, 288), (684, 288)])
    picture.text(690, 282, "results", "t", "end")
    picture.text(18, 358, "Four workers (W1 to W4) are busy on three epochs. What comes of a container goes to the one below it.", "s")
    picture.text(18, 374, "A watermark follows when all bundles in front of it, and all older watermarks, are consumed.", "s")
    return picture


def snapshot_cut():
    """The cut of a snapshot at three moments on its way through a job."""
    picture = Picture(720, 316, "The cut of a snapshot passes through a running job in three steps: it is placed at the sources, waits at the "
                                "window for both inputs, and leaves with the output when the state is captured.")
    panels = [
        (14, "1  The sources note their place", "and are read on at once"),
        (252, "2  The cut of A waits for that of B", "no row from behind it is taken"),
        (490, "3  The state is captured", "and the cut leaves with the output"),
    ]

    def track(left, top, width, dots, cut):
        """Rows from the newest to the oldest; those behind the cut, which may have passed, are green."""
        picture.path([(left, top), (left + width, top)], "line")
        for at in dots:
            picture.dot(left + at, top, 4.5, "green" if at < cut else "blue")
        if 0 <= cut <= width:
            picture.path([(left + cut, top - 11), (left + cut, top + 11)], "cut")

    def job(left, cut_a, cut_b, dots_a, dots_b, window, out, cut_out):
        for top, name in [(92, "A"), (178, "B")]:
            picture.box(left, top - 17, 34, 34, "stage", 6)
            picture.text(left + 17, top + 4.5, name, "b", "middle")
        picture.box(left + 128, 82, 34, 106, window, 6)
        picture.parts.append(f'<text class="t b" text-anchor="middle" transform="translate({left + 149} 135) rotate(-90)">window</text>')
        track(left + 34, 92, 94, dots_a, cut_a)
        track(left + 34, 178, 94, dots_b, cut_b)
        track(left + 162, 135, 54, out, cut_out)

    for left, title, line in panels:
        picture.text(left, 30, title, "t b")
        picture.text(left, 48, line, "t s")
    for left in (241, 479):
        picture.path([(left, 18), (left, 236)], "faint")
    job(14, 8, 8, [24, 44, 64, 84], [24, 44, 64, 84], "stage", [20, 42], -20)
    job(252, 88, 46, [14, 34, 54, 74], [12, 30, 62, 80], "hold", [20, 42], -20)
    job(490, 200, 200, [14, 34, 54, 74], [14, 34, 54, 74], "box", [32, 46], 18)
    picture.arrow([(490 + 145, 190), (490 + 145, 222)])
    picture.text(490 + 136, 214, "state to disk,", "t", "end")
    picture.text(490 + 136, 229, "while rows flow", "t", "end")

    picture.path([(14, 250), (706, 250)], "faint")
    picture.dot(22, 272, 4.5, "blue")
    picture.text(34, 276, "rows in front of the cut: in the snapshot", "t")
    picture.dot(292, 272, 4.5, "green")
    picture.text(304, 276, "rows behind it: read again after a crash", "t")
    picture.path([(560, 262), (560, 282)], "cut")
    picture.text(570, 276, "the cut", "t")
    picture.text(14, 302, "When the cut has reached the sinks and the state is durable, the rows in front of it become visible, all at once.", "s")
    return picture


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    for name, draw in [("watermark-moves.svg", watermarks), ("contracts.svg", contracts), ("epochs.svg", epochs),
                       ("snapshot-cut.svg", snapshot_cut)]:
        draw().write(folder, name)


if __name__ == "__main__":
    main()
