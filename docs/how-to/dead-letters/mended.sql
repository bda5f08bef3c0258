SET 'execution.checkpointing.interval' = '500 ms';

CREATE TABLE readings (
  ts      TIMESTAMP(3),
  sensor  STRING NOT NULL,
  celsius STRING
) WITH (
  'connector'               = 'filesystem',
  'format'                  = 'json',
  'path'                    = 'readings/',
  'source.monitor-interval' = '200 ms',
  'bad-data'                = 'dead-letter',
  'dead-letter.path'        = 'rejected.ndjson'
);

CREATE TABLE kept (ts TIMESTAMP(3), sensor STRING, celsius DOUBLE)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'kept.csv');

INSERT INTO kept SELECT ts, sensor, CAST(REPLACE(celsius, ' °C', '') AS DOUBLE) FROM readings;
