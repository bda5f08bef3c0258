SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE north (ts TIMESTAMP(3), used INT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'north/', 'source.monitor-interval' = '200 ms');

CREATE TABLE south (ts TIMESTAMP(3), used INT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'south/', 'source.monitor-interval' = '200 ms');

CREATE TABLE per_minute (minute_start TIMESTAMP(3), readings BIGINT, used INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'per_minute/');

CREATE VIEW readings AS SELECT ts, used FROM north UNION ALL SELECT ts, used FROM south;

INSERT INTO per_minute
SELECT window_start, COUNT(*), SUM(used)
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
