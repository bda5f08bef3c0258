-- Windows over the results of windows.
-- equality: sequence
SET 'pipeline.order' = 'arrival';
CREATE TABLE a (
  id BIGINT, k STRING, v INT, price DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'a.csv', 'csv.null-literal' = '');
CREATE VIEW inner_windows AS
SELECT window_time AS at, k, SUM(v) AS total FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY window_start, window_end, window_time, k;
CREATE TABLE result (at TIMESTAMP(3), k STRING, n BIGINT, total INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/');
INSERT INTO result
SELECT window_start, k, COUNT(*), SUM(total)
FROM TABLE(TUMBLE(TABLE inner_windows, DESCRIPTOR(at), INTERVAL '8' SECOND))
GROUP BY window_start, window_end, k;
