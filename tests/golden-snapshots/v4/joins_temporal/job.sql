-- A temporal join with versions.
-- equality: sequence
SET 'pipeline.order' = 'event_time';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '', 'source.sort-within' = '2 s');
CREATE TABLE b (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'b.csv', 'csv.null-literal' = '', 'source.sort-within' = '2 s');
CREATE VIEW versions AS SELECT id, k, v, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM b
) WHERE n = 1;
CREATE TABLE result (a BIGINT, b BIGINT, k STRING, v INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT a.id, r.id, a.k, a.v + r.v FROM a LEFT JOIN versions FOR SYSTEM_TIME AS OF a.ts AS r ON a.k = r.k;
