CREATE TABLE readings (
  ts      TIMESTAMP(3),
  sensor  STRING NOT NULL,
  celsius DOUBLE
) WITH (
  'connector'        = 'filesystem',
  'format'           = 'json',
  'path'             = 'readings.ndjson',
  'bad-data'         = 'dead-letter',
  'dead-letter.path' = 'rejected.ndjson'
);

SELECT ts, sensor, celsius FROM readings;
