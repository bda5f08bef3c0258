-- A window join of which one side's columns are not read.
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
SELECT id, k, v FROM (SELECT * FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '3' SECOND))) AS l WHERE EXISTS (
  SELECT 1 FROM (SELECT * FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '3' SECOND))) AS r
  WHERE l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end
);
