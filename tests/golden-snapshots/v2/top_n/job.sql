-- Top-N with the number of each row.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (k STRING, id BIGINT, v INT, n BIGINT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'op');
INSERT INTO result
SELECT k, id, v, n FROM (
  SELECT k, id, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM a
) WHERE n <= 3;
