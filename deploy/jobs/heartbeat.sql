-- A job for the dashboard of deploy/compose.yaml: readings of ten meters, counted for each second.
CREATE TABLE readings (
  meter INT,
  watts DOUBLE,
  taken AS PROCTIME()
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '1000',
  'fields.meter.min' = '1', 'fields.meter.max' = '10',
  'fields.watts.min' = '0', 'fields.watts.max' = '3500'
);

CREATE TABLE totals (window_end TIMESTAMP(3), meter INT, readings BIGINT, mean_watts DOUBLE)
WITH ('connector' = 'blackhole');

INSERT INTO totals
SELECT CAST(window_end AS TIMESTAMP(3)), meter, COUNT(*), AVG(watts)
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(taken), INTERVAL '1' SECOND))
GROUP BY window_start, window_end, meter;
