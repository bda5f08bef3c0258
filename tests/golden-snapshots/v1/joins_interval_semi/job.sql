-- An interval join of which one side's columns are not read.
-- equality: rows
SET 'pipeline.order' = 'epoch';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE b (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'b.csv', 'csv.null-literal' = '');
CREATE TABLE result (id BIGINT, k STRING, v INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT id, k, v FROM a WHERE EXISTS (
  SELECT 1 FROM b WHERE b.v = a.v AND a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts + INTERVAL '10' SECOND
);
