-- Patterns.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (k STRING, began BIGINT, bottom INT, ended BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT * FROM a MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts
  MEASURES FIRST(DOWN.id) AS began, LAST(DOWN.v) AS bottom, UP.id AS ended
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (DOWN+ UP)
  DEFINE DOWN AS (LAST(DOWN.v, 1) IS NULL OR DOWN.v < LAST(DOWN.v, 1)), UP AS UP.v > LAST(DOWN.v, 1)
);
