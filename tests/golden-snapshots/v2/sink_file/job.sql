-- Rows into one file that gets its name at the end.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (id BIGINT, k STRING, price DECIMAL(10, 2))
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/result.csv');
INSERT INTO result
SELECT id, k, price FROM a;
