-- Two inputs in one sequence by time.
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
CREATE TABLE result (id BIGINT, k STRING, at TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT id, k, ts FROM a UNION ALL SELECT id, k, ts FROM b;
