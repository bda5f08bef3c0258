-- Batch mode: a sort.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE TABLE result (id BIGINT, v INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT id, v FROM a ORDER BY v DESC, id;
