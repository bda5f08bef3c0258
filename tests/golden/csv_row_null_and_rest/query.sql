CREATE TABLE t (a INT, b ROW<x INT, y STRING>) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT a, b, b.x, b.y, b IS NULL AS n FROM t;
