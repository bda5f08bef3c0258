CREATE TABLE readings (
  ts TIMESTAMP(3), meter STRING, used INT,
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'readings.csv');

CREATE TABLE per_minute (minute_start TIMESTAMP(3), meter STRING, readings BIGINT, used INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'per_minute.csv');

INSERT INTO per_minute
SELECT window_start, meter, COUNT(*), SUM(used)
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, meter;
