"""Makes statements for flink_answers.py, one JSON object per line on standard output.

    scripts/flink_statements.py [NUMBER [SEED]]

Each is a query over the tables of PREAMBLE, put together at random from forms of the dialect. Some
hold what Flink refuses. The same number and seed make the same statements.
"""

import json
import random
import sys

PREAMBLE = """\
CREATE TABLE t (k INT, v BIGINT, d DOUBLE, s STRING, b BOOLEAN, x DECIMAL(10, 2), dt DATE,
  arr ARRAY<INT>, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '/data/t/', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE u (k INT, w BIGINT, s STRING, uts TIMESTAMP(3), WATERMARK FOR uts AS uts)
  WITH ('connector' = 'filesystem', 'path' = '/data/u/', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE g (id INT, name STRING)
  WITH ('connector' = 'filesystem', 'path' = '/data/g.csv', 'format' = 'csv');
CREATE TABLE p (k INT, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE o (k INT, n BIGINT)
  WITH ('connector' = 'filesystem', 'path' = '/data/out', 'format' = 'csv');
"""

NAMES = """at value result method next large day hour date time user order_id total start end status
    name type state count sum key position path data month year second offset row rows current match
    result language sql level source target system sensor price amount kind unit label region
    language period version plan catalog database tables views model test a1 _x note timestamp""".split()
NUMBERS = ["k", "v", "d", "x", "k + 1", "v * 2", "ABS(k)", "MOD(k, 3)", "d / 2", "x - 1", "k % 3",
           "CAST(s AS INT)", "CHAR_LENGTH(s)", "TRY_CAST(s AS DOUBLE)", "d % 2", "ROUND(d, 1)",
           "IF(b, k, 0)", "COALESCE(k, 0)", "NULLIF(k, 0)", "YEAR(dt)", "EXTRACT(HOUR FROM ts)",
           "CASE WHEN b THEN k ELSE 0 END", "POWER(k, 2)", "IFNULL(v, 0)", "COUNT_CHAR(s, 'a')",
           "GREATEST(k, 3)", "CARDINALITY(arr)", "arr[1]", "k + NULL", "IF(b, NULL, k)",
           "COALESCE(NULL, k)", "CASE WHEN b THEN NULL ELSE k END", "TIMESTAMPDIFF(SECOND, ts, ts)"]
TEXTS = ["s", "UPPER(s)", "s || 'x'", "SUBSTRING(s, 1, 2)", "CONCAT(s, 'y')", "TRIM(s)", "MD5(s)",
         "CAST(k AS STRING)", "REPLACE(s, 'a', 'b')", "DATE_FORMAT(ts, 'yyyy')", "LPAD(s, 5, '0')",
         "REGEXP_REPLACE(s, 'a', 'b')", "SPLIT_INDEX(s, ',', 0)", "JSON_VALUE(s, '$.a')",
         "CASE k WHEN 1 THEN 'one' ELSE 'more' END", "INITCAP(s)", "CONCAT(s, NULL)", "REVERSE(s)",
         "CONCAT_WS('-', s, 'b')", "LEFT(s, 2)", "POSITION('a' IN s)", "OVERLAY(s PLACING 'b' FROM 1)"]
CONDITIONS = ["k > 1", "k <> 1", "k != 1", "s LIKE 'a%'", "s IS NOT NULL", "b", "NOT b", "v IN (1, 2)",
              "k BETWEEN 1 AND 3", "s = 'a'", "k = 1 AND b", "d > 0.5 OR b", "REGEXP(s, 'a')",
              "REGEXP_LIKE(s, 'a')", "dt > DATE '2024-01-01'", "ts < TIMESTAMP '2024-01-01 00:00:00'",
              "k IN (1, NULL)", "k > NULL", "s SIMILAR TO 'a|b'", "k IS DISTINCT FROM 1", "b IS TRUE",
              "b AND NULL", "k IN (SELECT k FROM u)", "k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)",
              "EXISTS (SELECT 1 FROM u WHERE u.k = t.k)", "CHAR_LENGTH(s) > 2", "x >= 1.5"]
AGGREGATES = ["COUNT(*)", "COUNT(k)", "SUM(v)", "AVG(d)", "MIN(x)", "MAX(ts)", "COUNT(DISTINCT s)",
              "SUM(v) FILTER (WHERE b)", "LISTAGG(s)", "FIRST_VALUE(k)", "LAST_VALUE(s)", "MAX(s)",
              "STDDEV_POP(d)", "VAR_SAMP(d)", "ARRAY_AGG(k)", "APPROX_COUNT_DISTINCT(s)", "COUNT(NULL)",
              "SUM(DISTINCT v)", "MIN(dt)", "PERCENTILE(d, 0.5)"]
SIZES = ["INTERVAL '1' MINUTE", "INTERVAL '10' SECOND", "INTERVAL '1' HOUR", "INTERVAL '1' DAY",
         "INTERVAL '120' SECOND", "INTERVAL '120' SECOND(3)"]
OVERS = ["PARTITION BY k ORDER BY ts", "ORDER BY ts", "PARTITION BY s ORDER BY ts",
         "PARTITION BY k ORDER BY pt", "PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
         "PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"]
OVER_CALLS = ["SUM(v)", "COUNT(*)", "MAX(x)", "LAG(v)", "LAG(v, 2)", "LEAD(v)", "ROW_NUMBER()",
              "RANK()", "FIRST_VALUE(v)", "LAST_VALUE(v)", "AVG(d)", "DENSE_RANK()"]


class Maker:
    """Puts statements together."""

    def __init__(self, random_):
        self.pick, self.chance = random_.choice, lambda share: random_.random() < share
        self.number = random_.randint

    def alias(self):
        name = self.pick(NAMES) if self.chance(0.25) else f"c{self.number(1, 999)}"
        return f"`{name}`" if self.chance(0.15) else name

    def items(self, of, at_most=4):
        texts = [f"{self.pick(of)} AS {self.alias()}" for _ in range(self.number(1, at_most))]
        if self.chance(0.04):
            texts.append(self.pick(["NULL AS n0", "CAST(NULL AS INT) AS n0"]))
        return ", ".join(texts)

    def where(self, share=0.5):
        return f" WHERE {self.pick(CONDITIONS)}" if self.chance(share) else ""

    def simple(self):
        return f"SELECT {self.items(NUMBERS + TEXTS)} FROM t{self.where(0.7)}"

    def grouped(self):
        key = self.pick(["k", "s", "k, s", "dt", "CUBE (k, s)", "ROLLUP (k, s)", "GROUPING SETS ((k), ())"])
        having = f" HAVING {self.pick(['COUNT(*) > 1', 'MAX(v) > 3', 'COUNT(*) != 2'])}" if self.chance(0.3) else ""
        return f"SELECT {self.items(AGGREGATES)} FROM t{self.where(0.3)} GROUP BY {key}{having}"

    def window(self):
        size, step = self.pick(SIZES), self.pick(SIZES[:2])
        time = self.pick(["ts", "ts", "ts", "pt"])
        call = self.pick([
            f"TABLE(TUMBLE(TABLE t, DESCRIPTOR({time}), {size}))",
            f"TABLE(HOP(TABLE t, DESCRIPTOR({time}), {step}, INTERVAL '2' MINUTE))",
            f"TABLE(CUMULATE(TABLE t, DESCRIPTOR({time}), {step}, INTERVAL '2' MINUTE))",
            f"TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR({time}), {size}))",
            f"TUMBLE(t, {time}, {size})",
            f"HOP(t, {time}, {step}, INTERVAL '2' MINUTE)",
        ])
        keys = "window_start, window_end" + self.pick(["", ", k"])
        if "SESSION" in call:
            keys = "window_start, window_end, k"
        return f"SELECT {keys}, {self.items(AGGREGATES, 3)} FROM {call} GROUP BY {keys}"

    def old_window(self):
        size = self.pick(SIZES)
        return (f"SELECT TUMBLE_START(ts, {size}) AS {self.alias()}, {self.items(AGGREGATES, 2)} "
                f"FROM t GROUP BY TUMBLE(ts, {size}){self.pick(['', ', k'])}")

    def over(self):
        first = self.pick(OVERS)
        calls = [f"{self.pick(OVER_CALLS)} OVER ({first if self.chance(0.7) else self.pick(OVERS)}) AS {self.alias()}"
                 for _ in range(self.number(1, 2))]
        return f"SELECT k, {', '.join(calls)} FROM t{self.where(0.2)}"

    def join(self):
        kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = self.pick(["t.k = u.k", "t.k = u.k AND t.ts BETWEEN u.uts - INTERVAL '1' HOUR AND u.uts",
                        "t.k = u.k AND t.v > u.w", "t.s = u.s"])
        return f"SELECT t.k AS {self.alias()}, u.w AS {self.alias()} FROM t {kind} u ON {on}"

    def other_join(self):
        return self.pick([
            "SELECT t.k, g.name FROM t JOIN g ON t.k = g.id",
            "SELECT t.k, g.name FROM t LEFT JOIN g ON t.k = g.id",
            "SELECT t.k, g.name FROM t JOIN g FOR SYSTEM_TIME AS OF t.pt ON t.k = g.id",
            "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS n FROM (SELECT t.k, t.v, t.ts FROM t JOIN g ON t.k = g.id)",
            "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT t.ts FROM t JOIN g ON t.k = g.id), DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
            "SELECT t.k, u.w FROM t ASOF JOIN u MATCH_CONDITION (t.ts >= u.uts) ON t.k = u.k",
            "SELECT t.k, e FROM t CROSS JOIN UNNEST(t.arr) AS q (e)",
            f"SELECT t.k AS {self.alias()} FROM t JOIN g ON t.k = g.id WHERE {self.pick(['k > 1', 't.k != 2', 'g.name IS NOT NULL'])}",
        ])

    def shared_join(self):
        kind = self.pick(["", "", "LEFT ", "RIGHT ", "FULL "])
        join = self.pick([f"t {kind}JOIN u USING (k)", f"t {kind}JOIN u USING (k, s)", f"t NATURAL {kind}JOIN u",
                          f"t NATURAL {kind}JOIN (SELECT k, w FROM u) AS q", "t JOIN u USING (k) JOIN g ON t.k = g.id",
                          "t JOIN u USING (k) JOIN (SELECT k, w AS w2 FROM u) AS q USING (k)"])
        return self.pick([
            f"SELECT {self.pick(['*', 'k', 'k, v', 't.k', 'k AS c', 'k + 1 AS c', 'MAX(k) AS c', 'v'])} FROM {join}",
            f"SELECT v FROM {join} WHERE {self.pick(['k > 1', 't.k > 1', 'd > 1', 'v > k', 't.v IN (1, 2)'])}",
            f"SELECT {self.pick(['k, ', '', 't.k, '])}COUNT(*) AS c FROM {join} GROUP BY {self.pick(['k', 'k', 't.k', 'v'])}",
            f"SELECT {self.pick(['k', 'v', 'v AS k', 'k AS c'])} FROM {join} ORDER BY {self.pick(['k', 'v', 't.k'])} LIMIT 3",
            f"SELECT v FROM {join} GROUP BY v HAVING {self.pick(['MAX(k)', 'MAX(t.k)', 'COUNT(*)'])} > 1",
        ])

    def window_join(self):
        kind, where = self.pick(["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN"]), self.pick(["", " AND a.k = b.k"])
        side = lambda table, time: f"(SELECT * FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '1' MINUTE)))"
        return (f"SELECT a.k, a.v FROM {side('t', 'ts')} AS a {kind} {side('u', 'uts')} AS b "
                f"ON a.window_start = b.window_start AND a.window_end = b.window_end{where}")

    def sub_query(self):
        return self.pick([
            f"SELECT k, (SELECT MAX(w) FROM u) AS c FROM t{self.where(0.3)}",
            "SELECT k, (SELECT MAX(w) FROM u WHERE u.k = t.k) AS c FROM t",
            f"SELECT k FROM t WHERE v {self.pick(['>', '=', '<='])} (SELECT {self.pick(['MAX', 'MIN', 'AVG'])}(w) FROM u)",
            f"SELECT k FROM t WHERE {self.pick(['', 'NOT '])}EXISTS (SELECT * FROM u WHERE u.k = t.k AND u.w > {self.pick(['1', 't.v'])})",
            f"SELECT k FROM t WHERE (k, s) {self.pick(['', 'NOT '])}IN (SELECT k, s FROM u)",
            f"SELECT k FROM t WHERE v > {self.pick(['ALL', 'ANY', 'SOME'])} (SELECT w FROM u)",
            "SELECT q.k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS q JOIN u ON q.k = u.k",
            "SELECT t.k, q.w FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k) AS q",
        ])

    def ranked(self):
        function = self.pick(["ROW_NUMBER", "ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"])
        order = self.pick(["v DESC", "ts", "ts DESC", "pt", "d, v"])
        return (f"SELECT k, v FROM (SELECT k, v, {function}() OVER (PARTITION BY k ORDER BY {order}) AS "
                f"{self.pick(['rn', 'rn', 'n', 'rank_no'])} FROM t) WHERE rn {self.pick(['<= 3', '= 1', '< 5'])}")

    def set_operation(self):
        word = self.pick(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "MINUS", "EXCEPT ALL", "INTERSECT ALL"])
        return f"SELECT k FROM t{self.where(0.3)} {word} SELECT k FROM u"

    def ordered(self):
        return self.pick([
            "SELECT k, v FROM t ORDER BY v LIMIT 3", "SELECT k, ts FROM t ORDER BY ts", "SELECT k FROM t LIMIT 3",
            "SELECT k FROM g LIMIT 3", "SELECT id FROM g ORDER BY id LIMIT 2", "SELECT k FROM t ORDER BY ts, k",
            "SELECT id FROM g ORDER BY id OFFSET 2", "SELECT id FROM g OFFSET 1", "SELECT k FROM t ORDER BY k LIMIT 3 OFFSET 2",
        ])

    def named(self):
        name = self.alias()
        return self.pick([
            f"WITH {name} AS (SELECT k AS c FROM t) SELECT c FROM {name}",
            f"SELECT {name}.k FROM t AS {name}",
            f"SELECT {name} FROM (SELECT k AS {name} FROM t)",
            f"SELECT q.{name} + 1 AS c FROM (SELECT k AS {name} FROM t) AS q",
            f"SELECT MAX({name}) AS c FROM (SELECT k AS {name}, v FROM t) GROUP BY v",
            f"SELECT c.{name} FROM (VALUES (1), (2)) AS c ({name})",
        ])

    def written(self):
        query = self.pick([
            "SELECT k, v FROM t", "SELECT k, COUNT(*) FROM t GROUP BY k", "SELECT DISTINCT k, v FROM t",
            "SELECT k, v FROM t ORDER BY v LIMIT 3", "SELECT t.k, u.w FROM t JOIN u ON t.k = u.k",
            "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k", "SELECT k, NULL FROM t", "SELECT k, CAST(NULL AS BIGINT) FROM t",
            "SELECT t.k, t.v FROM t LEFT JOIN g ON t.k = g.id", "SELECT id, COUNT(*) FROM g GROUP BY id",
            "SELECT k, v FROM t UNION SELECT k, w FROM u", "SELECT k, w FROM u", "VALUES (1, CAST(2 AS BIGINT))",
            "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) FROM t", "SELECT k, k FROM t LIMIT 4",
            "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t) WHERE rn = 1",
            "SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, k",
        ])
        return f"INSERT INTO {self.pick(['o', 'o', 'p'])} {query}"

    def statement(self):
        make = self.pick([self.simple, self.simple, self.grouped, self.grouped, self.window, self.window,
                          self.old_window, self.over, self.over, self.join, self.other_join, self.shared_join,
                          self.window_join, self.sub_query, self.ranked,
                          self.set_operation, self.ordered, self.named, self.named, self.written])
        return make()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    maker = Maker(random.Random(seed))
    print(json.dumps({"define": "generated", "sql": PREAMBLE}))
    for number in range(count):
        line = {"name": f"generated/{seed}-{number}", "before": "generated", "sql": maker.statement() + ";"}
        print(json.dumps(line, ensure_ascii=False))


main()
