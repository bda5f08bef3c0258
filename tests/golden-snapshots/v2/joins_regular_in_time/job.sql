-- A regular join by time.
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
CREATE TABLE result (a BIGINT, b BIGINT, k STRING, note STRING)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/', 'changelog' = 'op');
INSERT INTO result
SELECT a.id, b.id, a.k, b.note FROM a FULL JOIN b ON a.k = b.k AND a.v / 10 = b.v / 10;
