"""Compares random queries with a running Apache Flink: windows, joins, changelogs and all that nests.

    scripts/flink_queries.py FLINK OURS FOLDER [--number N] [--seed N] [--form NAME] [--zone ZONE --start TIME]

FLINK is the gateway of a cluster (`tests/services/flink start DIR`), OURS that of a server of Thalweg
(docs/gateway.md) whose option allowed-roots names FOLDER, where the tables are written: two streams with
row times, and a changelog. Each query is put together at random from FORMS, one inside the other, and runs
as a stream or as a batch job. Compared are the rows that are left when all changes are applied, and the
types. A row that is retracted must be there. Printed is what differs, and how often each form was taken by
both. No row is late, and no result depends on which of two inputs is read first.

With --zone the row times are instants (TIMESTAMP_LTZ) and the sessions have that time zone. Rows lie within the
half hour from --start on, in UTC: `--zone America/New_York --start 2024-03-10T06:50` has clocks go forward within.
Where they go back, Flink loses windows.
"""

import argparse
import collections
import datetime
import json
import pathlib
import random
import re
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from flink_gateway import PROPERTIES, Gateway, Refused

TIMES = ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)")


@dataclass(frozen=True)
class Relation:
    """Something to select from: `sql` is a name or a query; columns are (name, type).

    `time` is the column that is a row time, `unique` one that no two rows share, `appends` whether rows are
    only inserted, and `ordered` whether they come in an order that both systems share.
    """

    sql: str
    columns: tuple
    time: str = None
    unique: str = None
    appends: bool = True
    ordered: bool = True
    depth: int = 0

    def source(self):
        return self.sql if self.sql.isidentifier() else f"({self.sql})"

    def argument(self):
        """As a window function takes it."""
        return ("TABLE " if self.sql.isidentifier() else "") + self.source()

    def of(self, *kinds):
        return [name for name, kind in self.columns if kind in kinds]


NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL(10, 2)")
T = (("id", "INT"), ("k", "INT"), ("v", "BIGINT"), ("d", "DOUBLE"), ("x", "DECIMAL(10, 2)"), ("s", "STRING"),
     ("b", "BOOLEAN"), ("ts", TIMES[0]))
U = (("id", "INT"), ("k", "INT"), ("w", "BIGINT"), ("s", "STRING"), ("ts", TIMES[0]))
C = (("id", "INT"), ("k", "INT"), ("v", "BIGINT"), ("s", "STRING"))
SOURCES = [
    Relation("t", T, "ts", "id"),
    Relation("u", U, "ts", "id"),
    Relation("c", C, None, "id", appends=False),
]


def instants():
    """Makes the row times of the sources instants."""
    for place, source in enumerate(SOURCES):
        columns = tuple((name, TIMES[1] if kind == TIMES[0] else kind) for name, kind in source.columns)
        SOURCES[place] = replace(source, columns=columns)


def tables(folder, drawn, start):
    """Writes the files; the declarations."""
    def lines(name, rows):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def maybe(value):
        return None if drawn.random() < 0.1 else value

    t, u, c = (source.columns for source in SOURCES)
    end = "Z" if dict(t)["ts"] == TIMES[1] else ""

    def stream(rows, gap_ms, disorder_ms):
        at_ms = 0
        for place in range(rows):
            at_ms += drawn.choice([0, 1, 500, 1000, drawn.randrange(gap_ms), gap_ms])
            at = start + datetime.timedelta(milliseconds=at_ms + 4000 - drawn.randrange(disorder_ms + 1))
            yield place, at.isoformat(" ", "milliseconds") + end

    words = ["a", "b", "ab", "Ba", "c c", ""]
    lines("t.json", [
        {"id": place, "k": maybe(drawn.randrange(5)), "v": maybe(drawn.randrange(-20, 100)),
         "d": maybe(drawn.randrange(-40, 80) / 8), "x": maybe(drawn.randrange(-500, 5000) / 100),
         "s": maybe(drawn.choice(words)), "b": maybe(drawn.random() < 0.5), "ts": at}
        for place, at in stream(90, 40_000, 4000)
    ])
    lines("u.json", [
        {"id": place, "k": maybe(drawn.randrange(6)), "w": maybe(drawn.randrange(50)),
         "s": maybe(drawn.choice(words)), "ts": at}
        for place, at in stream(50, 70_000, 0)
    ])
    kept, changes = {}, []
    for place in range(80):
        key = drawn.randrange(20)
        row = {"id": key, "k": maybe(drawn.randrange(5)), "v": maybe(drawn.randrange(30)), "s": maybe(drawn.choice(words))}
        if key in kept and drawn.random() < 0.3:
            changes.append({"before": kept.pop(key), "after": None, "op": "d"})
        else:
            changes.append({"before": kept.get(key), "after": row, "op": "u" if key in kept else "c"})
            kept[key] = row
    lines("c.json", changes)

    def declared(name, columns, more, form):
        listed = ", ".join(f"{column} {kind}" for column, kind in columns)
        return (f"CREATE TABLE {name} ({listed}{more}) WITH ('connector' = 'filesystem', 'path' = '{folder}/{name}.json', "
                f"'format' = '{form}')")

    return [
        declared("t", t, ", WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "json"),
        declared("u", u, ", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", "json"),
        declared("c", c, "", "debezium-json"),
    ]


class Maker:
    """Makes queries."""

    def __init__(self, drawn, is_batch):
        self.drawn, self.is_batch = drawn, is_batch

    def maybe(self, chance):
        return self.drawn.random() < chance

    def number(self, relation, prefix=""):
        """An expression of numbers."""
        names = relation.of(*NUMBERS)
        name = prefix + self.drawn.choice(names) if names else "1"
        return self.drawn.choice([name] * 4 + [
            f"{name} + 1", f"{name} * 2", f"-{name}", f"COALESCE({name}, 0)", f"ABS({name})",
            f"CASE WHEN {self.condition(relation, prefix, 0)} THEN {name} END", f"NULLIF({name}, 1)",
            f"CAST({name} AS BIGINT)", f"CAST({name} AS DOUBLE)", f"IF({name} > 3, {name}, 3)", f"{name} % 3"])

    def text(self, relation, prefix=""):
        names = relation.of("STRING")
        if not names:
            return f"CAST({self.number(relation, prefix)} AS STRING)"
        name = prefix + self.drawn.choice(names)
        return self.drawn.choice([name] * 4 + [f"UPPER({name})", f"{name} || 'x'", f"SUBSTRING({name}, 1, 1)",
                                               f"COALESCE({name}, '?')", f"CONCAT({name}, '-', {name})"])

    def condition(self, relation, prefix="", depth=2):
        number, text = relation.of(*NUMBERS), relation.of("STRING")
        number = prefix + self.drawn.choice(number) if number else "1"
        text = prefix + self.drawn.choice(text) if text else "'a'"
        simple = [f"{number} > {self.drawn.randrange(20)}", f"{number} <= {self.drawn.randrange(30)}",
                  f"{number} IS NOT NULL", f"{number} <> 3", f"{text} LIKE '%a%'", f"{text} = 'a'",
                  f"{number} IN (1, 2, 3, 7)", f"{number} NOT IN (1, 4)", f"{number} BETWEEN 0 AND 9", f"{text} IS NULL",
                  f"{number} IS DISTINCT FROM 2", f"{text} IN ('a', 'ab', '')", f"CHAR_LENGTH({text}) > 0"]
        simple += [prefix + name for name in relation.of("BOOLEAN")]
        if depth and self.maybe(0.3):
            first, second = (self.condition(relation, prefix, depth - 1) for _ in range(2))
            return self.drawn.choice([f"({first} AND {second})", f"({first} OR {second})", f"NOT ({first})",
                                      f"({first}) IS NOT TRUE"])
        return self.drawn.choice(simple)

    def aggregate(self, relation, in_window=False):
        """An aggregate call and the type of its result, if a later form may compute with it."""
        number = self.number(relation)
        calls = [("COUNT(*)", "BIGINT"), (f"COUNT({number})", "BIGINT"), (f"SUM({number})", None),
                 (f"MIN({number})", None), (f"MAX({number})", None), (f"AVG({number})", None),
                 (f"COUNT(DISTINCT {number})", "BIGINT"), (f"SUM(DISTINCT {number})", None),
                 (f"MAX({self.text(relation)})", "STRING"), (f"MIN({self.text(relation)})", "STRING"),
                 (f"COUNT(DISTINCT {self.text(relation)})", "BIGINT")]
        for name in relation.of("INT", "BIGINT"):
            calls += [(f"SUM({name})", dict(relation.columns)[name]), (f"MAX({name})", dict(relation.columns)[name])]
        if relation.time:
            calls.append((f"MAX({relation.time})", dict(relation.columns)[relation.time]))
        if relation.ordered and relation.appends and not self.is_batch and not in_window:
            calls += [(f"FIRST_VALUE({number})", None), (f"LAST_VALUE({number})", None), (f"LISTAGG({self.text(relation)})", "STRING")]
        call, kind = self.drawn.choice(calls)
        if self.maybe(0.2):
            call += f" FILTER (WHERE {self.condition(relation)})"
        return call, kind

    def aggregates(self, relation, first=0, in_window=False):
        calls = [self.aggregate(relation, in_window) for _ in range(self.drawn.randrange(1, 4))]
        return [(f"{call} AS a{first + place}", (f"a{first + place}", kind or "?")) for place, (call, kind) in enumerate(calls)]

    # The forms. Each takes what it selects from with `self.source(...)` and gives a Relation.

    def source(self, depth, need_time=False, need_append=False):
        """Something to select from; with a row time, or without updates, if it must."""
        for _ in range(20):
            if depth <= 0 or self.maybe(0.4):
                made = self.drawn.choice(SOURCES)
            else:
                made = self.query(depth - 1)
            if (made.time or not need_time) and (made.appends or not need_append):
                return made
        return SOURCES[self.drawn.randrange(2)]

    def query(self, depth, form=None):
        form = form or self.drawn.choice(FORMS)
        made = getattr(self, form)(depth)
        self.forms.add(form)
        return replace(made, depth=made.depth + 1)

    def project(self, depth):
        of = self.source(depth)
        kept = [(name, (name, kind)) for name, kind in of.columns if self.maybe(0.7) or name in (of.time, of.unique)]
        if not kept:
            kept = [(name, (name, kind)) for name, kind in of.columns]
        made = [(f"{self.number(of)} AS e{of.depth}", (f"e{of.depth}", "?"))] if self.maybe(0.5) else []
        made += [(f"{self.text(of)} AS f{of.depth}", (f"f{of.depth}", "STRING"))] if self.maybe(0.3) else []
        where = f" WHERE {self.condition(of)}" if self.maybe(0.6) else ""
        return replace(of, sql=f"SELECT {', '.join(sql for sql, _ in kept + made)} FROM {of.source()}{where}",
                       columns=distinct(column for _, column in kept + made))

    def keys(self, of, most=2):
        names = [name for name, kind in of.columns if kind in ("INT", "BIGINT", "STRING", "BOOLEAN") and name != of.unique]
        return self.drawn.sample(names, min(len(names), self.drawn.randrange(most + 1)))

    def group(self, depth):
        of = self.source(depth)
        keys = self.keys(of)
        made = self.aggregates(of, of.depth * 10)
        by, having = ", ".join(keys), ""
        if len(keys) == 2 and self.maybe(0.3):
            by = self.drawn.choice([f"GROUPING SETS (({keys[0]}), ({keys[1]}), ())", f"ROLLUP ({by})", f"CUBE ({by})",
                                    f"GROUPING SETS (({by}), ({keys[0]}))"])
        if keys and self.maybe(0.25):
            having = f" HAVING COUNT(*) > {self.drawn.randrange(1, 5)}"
        kinds = dict(of.columns)
        columns = tuple((key, kinds[key]) for key in keys) + tuple(column for _, column in made)
        sql = f"SELECT {', '.join(keys + [call for call, _ in made])} FROM {of.source()}" + (f" GROUP BY {by}" if keys else "") + having
        plain = len(keys) == 1 and by == keys[0]
        return Relation(sql, distinct(columns), None, keys[0] if plain else None, self.is_batch, False, of.depth)

    def window(self, of):
        """A call of a window function over the relation; sessions may have keys of their own."""
        kinds = ["TUMBLE", "HOP", "CUMULATE"] + ([] if self.is_batch else ["SESSION"])
        kind = self.drawn.choice(kinds)
        size = self.drawn.choice([30, 60, 120, 300])
        descriptor = f"DESCRIPTOR({of.time})"
        def seconds(number):
            return f"INTERVAL '{number}' SECOND(3)"
        if kind == "SESSION":
            keys = self.keys(of, 1)
            by = f" PARTITION BY ({keys[0]})" if keys else ""
            return f"SESSION({of.argument()}{by}, {descriptor}, {seconds(self.drawn.choice([5, 20, 45]))})", keys
        steps = "" if kind == "TUMBLE" else f"{seconds(size // self.drawn.choice([1, 2, 3, 5]))}, "
        offset = f", {seconds(self.drawn.choice([-7, 10, 20]))}" if self.maybe(0.2) else ""
        return f"{kind}({of.argument()}, {descriptor}, {steps}{seconds(size)}{offset})", None

    def window_group(self, depth):
        of = self.source(depth, need_time=True)
        call, session_keys = self.window(of)
        keys = session_keys if session_keys is not None else self.keys(of)
        made = self.aggregates(of, of.depth * 10, not call.startswith(("TUMBLE", "SESSION")))
        with_time = self.maybe(0.5)
        bounds = [("window_start", f"s{of.depth}"), ("window_end", f"w{of.depth}")] + ([("window_time", f"m{of.depth}")] if with_time else [])
        grouped = ", ".join([name for name, _ in bounds] + keys)
        if session_keys is None and len(keys) == 2 and not with_time and self.maybe(0.3):
            grouped = f"window_start, window_end, GROUPING SETS (({keys[0]}), ({keys[1]}))"
        having = f" HAVING COUNT(*) > {self.drawn.randrange(1, 4)}" if self.maybe(0.2) else ""
        kinds = dict(of.columns)
        selected = [f"{name} AS {shown}" for name, shown in bounds] + keys + [call for call, _ in made]
        columns = [(shown, kinds[of.time] if name == "window_time" else TIMES[0]) for name, shown in bounds]
        columns += [(key, kinds[key]) for key in keys] + [column for _, column in made]
        sql = f"SELECT {', '.join(selected)} FROM TABLE({call}) GROUP BY {grouped}{having}"
        return Relation(sql, distinct(columns), f"m{of.depth}" if with_time else None, None, True, False, of.depth)

    def pair(self, depth, **needs):
        """Two relations, and a condition that makes keys equal."""
        left, right = self.source(depth, **needs), self.source(depth - 1, **needs)
        shared = [(a, b) for a, kind in left.columns for b, other in right.columns
                  if kind in ("INT", "BIGINT", "STRING") and (kind == other or {kind, other} == {"INT", "BIGINT"})]
        if not shared:
            return self.pair(0, **needs)
        a, b = self.drawn.choice(shared)
        return left, right, f"l.{a} = r.{b}"

    def joined(self, left, right, depth):
        """The SELECT list of a join and the columns."""
        listed = [(f"l.{name} AS l{depth}{name}", (f"l{depth}{name}", kind)) for name, kind in left.columns]
        listed += [(f"r.{name} AS r{depth}{name}", (f"r{depth}{name}", kind)) for name, kind in right.columns]
        must = {f"l{depth}{left.time}", f"l{depth}{left.unique}", f"r{depth}{right.time}"}
        listed = [one for one in listed if self.maybe(0.6) or one[1][0] in must] or listed
        return ", ".join(sql for sql, _ in listed), distinct(column for _, column in listed)

    def join(self, depth):
        left, right, on = self.pair(depth)
        kind = self.drawn.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        n = max(left.depth, right.depth)
        names, columns = self.joined(left, right, n)
        if self.maybe(0.3):
            on += f" AND {self.condition(left, 'l.')}"
        if self.maybe(0.2):
            on += f" AND {self.condition(right, 'r.')}"
        numbers = left.of(*NUMBERS), right.of(*NUMBERS)
        if all(numbers) and self.maybe(0.2):
            on += f" AND l.{self.drawn.choice(numbers[0])} < r.{self.drawn.choice(numbers[1])}"
        where = f" WHERE {self.condition(right, 'r.')}" if self.maybe(0.2) else ""
        sql = f"SELECT {names} FROM {left.source()} l {kind} {right.source()} r ON {on}{where}"
        appends = self.is_batch or (left.appends and right.appends and kind == "JOIN")
        return Relation(sql, columns, None, None, appends, False, n)

    def interval_join(self, depth):
        left, right, on = self.pair(depth, need_time=True, need_append=True)
        kind = self.drawn.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        n = max(left.depth, right.depth)
        names, columns = self.joined(left, right, n)
        lower, upper = sorted(self.drawn.randrange(-60, 90) for _ in range(2))
        def moved(seconds):
            return f"r.{right.time} {'+' if seconds >= 0 else '-'} INTERVAL '{abs(seconds)}' SECOND(3)"
        bounds = self.drawn.choice([f"l.{left.time} BETWEEN {moved(lower)} AND {moved(upper)}",
                                    f"l.{left.time} >= {moved(lower)} AND l.{left.time} < {moved(upper)}"])
        more = f" AND {self.condition(left, 'l.')}" if self.maybe(0.2) else ""
        sql = f"SELECT {names} FROM {left.source()} l {kind} {right.source()} r ON {on} AND {bounds}{more}"
        time = next((f"{side}{n}{name}" for side, name in (("l", left.time), ("r", right.time)) if self.maybe(0.7)), None)
        return Relation(sql, columns, time if kind == "JOIN" else None, None, True, False, n)

    def window_join(self, depth):
        left, right, on = self.pair(depth, need_time=True, need_append=True)
        n = max(left.depth, right.depth)
        size = self.drawn.choice([30, 60, 120])
        kind = self.drawn.choice(["TUMBLE", "HOP", "CUMULATE"])
        step = "" if kind == "TUMBLE" else f"INTERVAL '{size // self.drawn.choice([2, 3])}' SECOND(3), "
        def side(of):
            return f"(SELECT * FROM TABLE({kind}({of.argument()}, DESCRIPTOR({of.time}), {step}INTERVAL '{size}' SECOND(3))))"
        both = f"{on} AND l.window_start = r.window_start AND l.window_end = r.window_end"
        if self.maybe(0.3):
            names = self.drawn.choice(["EXISTS", "NOT EXISTS"])
            sql = (f"SELECT {', '.join('l.' + name for name, _ in left.columns)} FROM {side(left)} l "
                   f"WHERE {names} (SELECT * FROM {side(right)} r WHERE {both})")
            return Relation(sql, left.columns, None, None, True, False, n)
        join = self.drawn.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        names, columns = self.joined(left, right, n)
        more = f" AND {self.condition(right, 'r.')}" if self.maybe(0.2) else ""
        start = self.drawn.choice(["l.window_start", "r.window_start", "COALESCE(l.window_start, r.window_start)"])
        sql = f"SELECT {names}, {start} AS g{n} FROM {side(left)} l {join} {side(right)} r ON {both}{more}"
        return Relation(sql, columns + ((f"g{n}", TIMES[0]),), None, None, True, False, n)

    def temporal_join(self, depth):
        if self.is_batch:
            return self.join(depth)
        left = self.source(depth, need_time=True, need_append=True)
        keys = left.of("INT")
        if not keys:
            left = SOURCES[0]
            keys = ["k"]
        names, columns = self.joined(left, SOURCES[1], left.depth)
        kind = self.drawn.choice(["JOIN", "LEFT JOIN"])
        by = self.drawn.choice(["k", "k", "id"])
        # Keys that are NULL are equal to Flink.
        latest = (f"SELECT id, k, w, s, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY ts DESC) AS n "
                  f"FROM u WHERE k IS NOT NULL) WHERE n = 1")
        on = f"l.{self.drawn.choice(keys)} = r.{by}" + (f" AND {self.condition(SOURCES[1], 'r.')}" if self.maybe(0.2) else "")
        sql = f"SELECT {names} FROM {left.source()} l {kind} versioned_{by} FOR SYSTEM_TIME AS OF l.{left.time} AS r ON {on}"
        self.views[f"versioned_{by}"] = f"CREATE VIEW versioned_{by} AS {latest}"
        return Relation(sql, columns, f"l{left.depth}{left.time}", None, True, False, left.depth)

    def semi_join(self, depth):
        left, right, on = self.pair(depth)
        a, b = on.split(" = ")
        form = self.drawn.choice(["EXISTS", "NOT EXISTS", "IN", "NOT IN"])
        more = f" WHERE {self.condition(right, 'r.')}" if self.maybe(0.5) else ""
        if form.endswith("IN"):
            test = f"{a} {form} (SELECT {b} FROM {right.source()} r{more})"
        else:
            test = f"{form} (SELECT 1 FROM {right.source()} r{more or ' WHERE TRUE'} AND {on})"
        sql = f"SELECT {', '.join('l.' + name for name, _ in left.columns)} FROM {left.source()} l WHERE {test}"
        appends = self.is_batch or (left.appends and right.appends and not form.startswith("NOT"))
        return Relation(sql, left.columns, None, left.unique, appends, False, max(left.depth, right.depth))

    def scalar(self, depth):
        left, right, on = self.pair(depth)
        call, kind = self.aggregate(replace(right, ordered=False))
        call = re.sub(r"\b(" + "|".join(name for name, _ in right.columns) + r")\b(?!\()", r"r.\1", call)
        where = f" WHERE {on}" if self.maybe(0.6) else ""
        n = max(left.depth, right.depth)
        listed = ", ".join("l." + name for name, _ in left.columns)
        sql = f"SELECT {listed}, (SELECT {call} FROM {right.source()} r{where}) AS q{n} FROM {left.source()} l"
        return Relation(sql, left.columns + ((f"q{n}", kind or "?"),), None, left.unique, self.is_batch, False, n)

    def ranked(self, depth):
        of = self.source(depth)
        keys, n = self.keys(of, 1), of.depth
        by = f"PARTITION BY {keys[0]} " if keys else ""
        names = [name for name, kind in of.columns if kind in (*NUMBERS, "STRING", *TIMES) and name != of.unique]
        order = [f"{name} {self.drawn.choice(['ASC', 'DESC'])}{self.drawn.choice(['', '', ' NULLS FIRST', ' NULLS LAST'])}"
                 for name in self.drawn.sample(names, min(len(names), 2))]
        order.append(of.unique or ", ".join(name for name, kind in of.columns if kind != "?"))
        # Flink never retracts a first row alone (FLINK-40368).
        first = self.drawn.choice([1, 2, 3] if self.is_batch else [2, 3])
        kept = ", ".join(name for name, _ in of.columns) + (f", n{n}" if self.maybe(0.5) else "")
        sql = (f"SELECT {kept} FROM (SELECT *, ROW_NUMBER() OVER ({by}ORDER BY {', '.join(order)}) AS n{n} FROM {of.source()}) "
               f"WHERE n{n} <= {first}")
        columns = of.columns + (((f"n{n}", "BIGINT"),) if kept.endswith(f"n{n}") else ())
        if any(kind == "?" for _, kind in of.columns) and not of.unique:
            sql, columns = f"SELECT DISTINCT * FROM {of.source()}", of.columns
        return Relation(sql, columns, None, of.unique, self.is_batch, False, n)

    def deduplicated(self, depth):
        of = self.source(depth, need_time=True)
        keys, n = self.keys(of, 2), of.depth
        order = self.drawn.choice(["ASC", "DESC"])
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        if not (of.ordered and of.appends):
            return self.window_group(depth)
        kept = ", ".join(name for name, _ in of.columns)
        sql = f"SELECT {kept} FROM (SELECT *, ROW_NUMBER() OVER ({by}ORDER BY {of.time} {order}) AS n{n} FROM {of.source()}) WHERE n{n} = 1"
        return Relation(sql, of.columns, of.time if order == "ASC" else None, keys[0] if len(keys) == 1 else None,
                        self.is_batch or order == "ASC", order == "ASC", n)

    def window_ranked(self, depth):
        of = self.source(depth, need_time=True, need_append=True)
        call, session_keys = self.window(of)
        keys = session_keys if session_keys is not None else self.keys(of, 1)
        if not of.unique:
            return self.window_group(depth)
        names = [name for name, kind in of.columns if kind in NUMBERS and name != of.unique] or [of.unique]
        n, first = of.depth, self.drawn.choice([1, 2, 3])
        by = ", ".join(["window_start", "window_end"] + keys)
        kept = ", ".join([name for name, _ in of.columns] + [f"window_end AS h{n}"])
        sql = (f"SELECT {kept} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {self.drawn.choice(names)} "
               f"{self.drawn.choice(['ASC', 'DESC'])}, {of.unique}) AS n{n} FROM TABLE({call})) WHERE n{n} <= {first}")
        return Relation(sql, of.columns + ((f"h{n}", TIMES[0]),), None, None, True, False, n)

    def over(self, depth):
        of = self.source(depth, need_time=True, need_append=True)
        if not of.ordered:
            return self.window_group(depth)
        keys, n = self.keys(of, 1), of.depth
        by = f"PARTITION BY {keys[0]} " if keys else ""
        frames = ["", f"ROWS BETWEEN {self.drawn.randrange(1, 5)} PRECEDING AND CURRENT ROW",
                  "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"]
        if not (self.is_batch and dict(of.columns)[of.time] == TIMES[1]):
            # Over instants Flink's batch mode has none.
            frames.append(f"RANGE BETWEEN INTERVAL '{self.drawn.randrange(1, 90)}' SECOND(3) PRECEDING AND CURRENT ROW")
        frame = self.drawn.choice(frames)
        number = self.number(of)
        calls = [f"SUM({number})", f"COUNT({number})", f"MAX({number})", f"MIN({number})", f"AVG({number})", "COUNT(*)"]
        calls += [] if self.is_batch else [f"COUNT(DISTINCT {number})", f"FIRST_VALUE({number})", f"LAST_VALUE({number})"]
        if not frame:
            # LAG is not among them: rows of the same time are one to Flink, so that a row can come before itself.
            calls += ["ROW_NUMBER()", "RANK()", "DENSE_RANK()"]
        call = self.drawn.choice(calls)
        kept = ", ".join(name for name, _ in of.columns)
        if self.is_batch and "ROWS" in frame and not of.unique:
            return self.window_group(depth)
        order = f"{of.time}, {of.unique}" if self.is_batch and "ROWS" in frame else of.time
        sql = f"SELECT {kept}, {call} OVER ({by}ORDER BY {order} {frame}) AS o{n} FROM {of.source()}"
        return Relation(sql, of.columns + ((f"o{n}", "?"),), of.time, of.unique, True, False, n)

    def set_operation(self, depth):
        left, right, _ = self.pair(depth)
        kinds = [(a, b) for a, kind in left.columns for b, other in right.columns if kind == other != "?"]
        chosen = self.drawn.sample(kinds, min(len(kinds), self.drawn.randrange(1, 4)))
        if not chosen:
            return self.group(depth)
        operation = self.drawn.choice(["UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        n, kinds = max(left.depth, right.depth), dict(left.columns)
        first = ", ".join(f"{a} AS z{n}{place}" for place, (a, _) in enumerate(chosen))
        second = ", ".join(b for _, b in chosen)
        sql = f"SELECT {first} FROM {left.source()} {operation} SELECT {second} FROM {right.source()}"
        columns = tuple((f"z{n}{place}", kinds[a]) for place, (a, _) in enumerate(chosen))
        time = next((f"z{n}{place}" for place, (a, b) in enumerate(chosen) if (a, b) == (left.time, right.time)), None)
        is_all = operation == "UNION ALL"
        return Relation(sql, columns, time if is_all else None, None,
                        self.is_batch or (is_all and left.appends and right.appends), False, n)

    def unnested(self, depth):
        of = self.source(depth)
        n, numbers = of.depth, of.of("INT", "BIGINT")
        values = [f"l.{name}" for name in self.drawn.sample(numbers, 2)] if len(numbers) > 1 else ["1", "2"]
        names = [name for name, kind in of.columns if self.maybe(0.7)] or [of.columns[0][0]]
        columns = tuple(column for column in of.columns if column[0] in names or column[0] == of.time)
        listed = ", ".join("l." + name for name, _ in columns)
        join = self.drawn.choice(["CROSS JOIN", "CROSS JOIN", "LEFT JOIN"])
        sql = f"SELECT {listed}, y.y{n} FROM {of.source()} l {join} UNNEST(ARRAY[{', '.join(values)}]) AS y (y{n})"
        sql += " ON TRUE" if join == "LEFT JOIN" else ""
        return replace(of, sql=sql, columns=columns + ((f"y{n}", "?"),), unique=None)

    def distinct(self, depth):
        of = self.source(depth)
        names = [name for name, kind in of.columns if self.maybe(0.5)] or [of.columns[0][0]]
        columns = tuple(column for column in of.columns if column[0] in names)
        return Relation(f"SELECT DISTINCT {', '.join(name for name, _ in columns)} FROM {of.source()}", columns, None, None,
                        self.is_batch or of.appends, False, of.depth)

    def limited(self, depth):
        of = self.source(depth)
        names = [name for name, kind in of.columns if kind in (*NUMBERS, "STRING", *TIMES)]
        if not of.unique or not names:
            return self.distinct(depth)
        order = f"{self.drawn.choice(names)} {self.drawn.choice(['ASC', 'DESC'])}, {of.unique}"
        # Over rows that are updated, Flink's OFFSET leaves more rows than LIMIT.
        offset = f" OFFSET {self.drawn.randrange(4)}" if of.appends and self.maybe(0.2) else ""
        sql = f"SELECT {', '.join(name for name, _ in of.columns)} FROM {of.source()} ORDER BY {order} LIMIT {self.drawn.randrange(1, 9)}{offset}"
        return Relation(sql, of.columns, None, of.unique, self.is_batch, False, of.depth)

    def matched(self, depth):
        of = self.source(depth, need_time=True, need_append=True)
        numbers = [name for name in of.of(*NUMBERS) if name != of.unique]
        if not of.ordered or not numbers or self.is_batch:
            return self.window_group(depth)
        keys, n, value = self.keys(of, 1), of.depth, self.drawn.choice(numbers)
        by = f"PARTITION BY {keys[0]} " if keys else ""
        pattern, measured = self.drawn.choice([
            ("A B", "A.{0} AS p{1}, B.{0} AS p{1}b"), ("A B+ C", "LAST(B.{0}) AS p{1}, COUNT(B.{0}) AS p{1}b"),
            ("A B* C", "FIRST(A.{0}) AS p{1}, SUM(B.{0}) AS p{1}b"), ("A B? C", "A.{0} AS p{1}, C.{0} AS p{1}b"),
            ("A C{{2}} B", "LAST(C.{0}, 1) AS p{1}, B.{0} AS p{1}b")])
        skip = self.drawn.choice(["PAST LAST ROW", "TO NEXT ROW"])
        within = f" WITHIN INTERVAL '{self.drawn.randrange(20, 200)}' SECOND(3)" if self.maybe(0.3) else ""
        defined = self.drawn.choice(["B AS B.{0} > A.{0}", "B AS B.{0} > 10, C AS C.{0} <= 20", "A AS A.{0} > 0, B AS B.{0} < LAST(B.{0}, 1) OR LAST(B.{0}, 1) IS NULL"])
        if "C" not in pattern:
            defined = defined.split(", C AS")[0]
        elif "C AS" not in defined:
            defined += ", C AS C.{0} <= 15"
        sql = (f"SELECT * FROM {of.source()} MATCH_RECOGNIZE ({by}ORDER BY {of.time} MEASURES {measured.format(value, n)} "
               f"ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN ({pattern.format()}){within} DEFINE {defined.format(value)})")
        kinds = dict(of.columns)
        return Relation(sql, tuple((key, kinds[key]) for key in keys) + ((f"p{n}", "?"), (f"p{n}b", "?")), None, None, True, False, n)

    def made(self, depth, form):
        self.forms, self.views = set(), {}
        return self.query(depth, form)


FORMS = ["project", "group", "group", "window_group", "window_group", "join", "join", "interval_join", "window_join", "temporal_join",
         "semi_join", "scalar", "ranked", "deduplicated", "window_ranked", "over", "set_operation", "distinct", "limited", "matched", "unnested"]


def distinct(columns):
    """The columns, of which no two have the same name."""
    return tuple(dict.fromkeys(columns))


class Side:
    """One of the two systems: a session for each mode and thread."""

    def __init__(self, url, declarations, zone):
        self.url, self.declarations, self.sessions = url, declarations, {}
        self.properties = {**PROPERTIES, "table.local-time-zone": zone}

    def answer(self, place, is_batch, views, query):
        key = (place, is_batch)
        if key not in self.sessions:
            mode = "batch" if is_batch else "streaming"
            self.sessions[key] = Gateway(self.url, {**self.properties, "execution.runtime-mode": mode})
            for declaration in self.declarations:
                if not (is_batch and "debezium" in declaration):
                    self.sessions[key].run(declaration)
        session = self.sessions[key]
        try:
            for name, view in views.items():
                session.run(f"DROP VIEW IF EXISTS {name}")
                session.run(view)
            columns, rows = session.run(query)
        except Refused as refused:
            return "refused", str(refused).strip()[:400], None
        left, is_wrong = collections.Counter(), False
        for kind, fields in rows:
            row = json.dumps(fields)
            left[row] += 1 if kind in ("INSERT", "UPDATE_AFTER") else -1
            is_wrong |= left[row] < 0
        kinds = [re.sub(r'"nullable": \w+', "", json.dumps(column["logicalType"], sort_keys=True)) for column in columns]
        return kinds, +left, is_wrong


def difference(ours, flink):
    """What differs, in words, or None."""
    if "refused" in (ours[0], flink[0]):
        if ours[0] == flink[0]:
            return None
        return f"only Flink takes it: {ours[1]}" if ours[0] == "refused" else f"only Thalweg takes it: {flink[1]}"
    if ours[2] and not flink[2]:
        return "a row is retracted that is not there"
    if ours[1] != flink[1]:
        more, fewer = list((ours[1] - flink[1]).items()), list((flink[1] - ours[1]).items())
        return f"rows: {len(more)} only here, {len(fewer)} only in Flink; here {more[:2]}, Flink {fewer[:2]}"
    if ours[0] != flink[0]:
        return f"types: {[(a, b) for a, b in zip(ours[0], flink[0]) if a != b][:2]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flink"), parser.add_argument("ours"), parser.add_argument("folder")
    parser.add_argument("--number", type=int, default=200), parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--form", choices=sorted(set(FORMS))), parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--zone"), parser.add_argument("--start", type=datetime.datetime.fromisoformat, default="2024-06-01")
    parser.add_argument("--show", action="store_true", help="only print the queries")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder).resolve()
    if options.zone:
        instants()
    declarations = tables(folder, random.Random(options.seed), options.start)
    ours, flink = (Side(url, declarations, options.zone or "UTC") for url in (options.ours, options.flink))
    taken, kinds = collections.Counter(), collections.Counter()

    def one(number):
        drawn = random.Random(f"{options.seed}.{number}")
        is_batch = drawn.random() < 0.25
        maker = Maker(drawn, is_batch)
        made = maker.made(drawn.randrange(options.depth + 1), options.form)
        if is_batch and re.search(r"\bFROM c\b|\bJOIN c\b", made.sql):
            is_batch = False
        if options.show:
            print(f"{number}: {made.sql}\n")
            return
        asked = is_batch, maker.views, made.sql
        here = ours.answer(number % 3, *asked)
        there = flink.answer(number % 3, *asked)
        found = difference(here, there)
        if here[0] != "refused" != there[0]:
            taken.update(maker.forms)
        kinds[found.split(":")[0] if found else "equal" if here[0] != "refused" else "both refuse"] += 1
        if found:
            views = "".join(f"{view};\n" for view in maker.views.values())
            print(f"#{number} {'batch' if is_batch else 'stream'}: {found}\n{views}{made.sql};\n", flush=True)

    def lane(first):
        for number in range(first, options.number, 3):
            try:
                one(number)
            except Exception:
                traceback.print_exc()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lane, range(3)))
    print(dict(kinds), dict(taken))


if __name__ == "__main__":
    main()
