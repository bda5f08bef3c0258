CREATE TABLE t (k INT, v BIGINT, d DOUBLE, s STRING, b BOOLEAN, x DECIMAL(10, 2), dt DATE,
  arr ARRAY<INT>, m MAP<STRING, INT>, r ROW<a INT, c STRING>, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '/data/t.json', 'format' = 'json');
CREATE TABLE u (k INT, w BIGINT, s STRING, uts TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR uts AS uts)
  WITH ('connector' = 'filesystem', 'path' = '/data/u.json', 'format' = 'json');
CREATE TABLE g (id INT, name STRING)
  WITH ('connector' = 'filesystem', 'path' = '/data/g.csv', 'format' = 'csv');
CREATE TABLE o (k INT, n BIGINT)
  WITH ('connector' = 'filesystem', 'path' = '/data/out/', 'format' = 'csv');
CREATE TABLE q (k INT, n BIGINT, day_ STRING) PARTITIONED BY (day_)
  WITH ('connector' = 'filesystem', 'path' = '/data/parts/', 'format' = 'csv');
CREATE TABLE p (k INT, n BIGINT) WITH ('connector' = 'print');
CREATE VIEW w AS SELECT k, v FROM t;
CREATE DATABASE d1;
CREATE CATALOG c1 WITH ('type' = 'generic_in_memory');
CREATE VIEW z AS SELECT * FROM (SELECT 3 AS i, 2.5e0 AS d, 'abc' AS s, TRUE AS b, CAST(1.5 AS DECIMAL(10, 2)) AS x, DATE '2026-01-15' AS dt, TIMESTAMP '2026-01-15 10:11:12.345' AS ts, ARRAY[1, 2] AS arr, MAP['a', 1] AS m, '{"a": 1, "c": [1]}' AS j, 1 AS k, CAST(ROW(1, 'x') AS ROW<a INT, c STRING>) AS r) AS z;
