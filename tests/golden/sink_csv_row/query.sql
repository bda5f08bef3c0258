CREATE TABLE o (a INT, b ROW<x INT, y STRING, w BOOLEAN, d DATE>) WITH ('connector' = 'filesystem', 'path' = '@DIR@/out', 'format' = 'csv');
INSERT INTO o SELECT a, CAST(ROW(a + 1, s, a > 1, DATE '2024-02-29') AS ROW<x INT, y STRING, w BOOLEAN, d DATE>) FROM (VALUES (1, 'q'), (2, CAST(NULL AS STRING)), (3, 'u')) AS v (a, s);
CREATE TABLE back (a INT, b ROW<x INT, y STRING, w BOOLEAN, d DATE>) WITH ('connector' = 'filesystem', 'path' = '@DIR@/out', 'format' = 'csv');
SELECT a, b, b.y AS y FROM back;
