-- Sensors measure temperatures. Some of their clocks are wrong. A gateway, whose clock is right, adds when it received a reading.
SET 'execution.checkpointing.dir' = '${work}/snapshots';
SET 'execution.checkpointing.interval' = '200 ms';

-- A time is wrong if it is more than 10 s ahead of the gateway's, or 5 min behind. Then the gateway's counts, so that a clock that is
-- a year ahead does not make the readings of all other devices late.
CREATE TABLE readings (
  device STRING, celsius DOUBLE, measured TIMESTAMP(3), received TIMESTAMP(3),
  is_wrong AS measured NOT BETWEEN received - INTERVAL '5' MINUTE AND received + INTERVAL '10' SECOND,
  ts AS CASE WHEN measured BETWEEN received - INTERVAL '5' MINUTE AND received + INTERVAL '10' SECOND THEN measured ELSE received END,
  WATERMARK FOR ts AS ts - INTERVAL '20' SECOND
) WITH (
  'connector' = 'mqtt', 'url' = 'mqtt://127.0.0.1:${port}', 'username' = 'thalweg', 'password' = '${secret:mqtt}',
  'topic' = 'plants/+/readings', 'format' = 'json', 'client-id' = 'averages',
  'bad-data' = 'dead-letter', 'dead-letter.path' = '${work}/rejected.ndjson'
);

-- A device whose clock is wrong is in quarantine until three readings in a row are right.
CREATE VIEW judged AS
SELECT device, celsius, measured, received, ts,
  MAX(CASE WHEN is_wrong THEN 1 ELSE 0 END) OVER (PARTITION BY device ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS in_quarantine
FROM readings;

CREATE TABLE averages (device STRING, minute_start TIMESTAMP(3), readings BIGINT, celsius DOUBLE) WITH (
  'connector' = 'filesystem', 'path' = '${work}/averages/', 'format' = 'csv', 'sink.rolling-policy.rollover-interval' = '200 ms'
);
CREATE TABLE quarantine (device STRING, celsius DOUBLE, measured TIMESTAMP(3), received TIMESTAMP(3)) WITH (
  'connector' = 'filesystem', 'path' = '${work}/quarantine/', 'format' = 'csv', 'sink.rolling-policy.rollover-interval' = '200 ms'
);
-- The broker keeps the last message of each topic: who looks later sees which clocks are wrong, and by how much.
CREATE TABLE clocks (ahead_s BIGINT, topic STRING NOT NULL METADATA) WITH (
  'connector' = 'mqtt', 'url' = 'mqtt://127.0.0.1:${port}', 'username' = 'thalweg', 'password' = '${secret:mqtt}',
  'format' = 'json', 'sink.retain' = 'true'
);

EXECUTE STATEMENT SET BEGIN
  INSERT INTO averages
  SELECT device, window_start, COUNT(*), AVG(celsius)
  FROM TABLE(TUMBLE(TABLE judged, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  WHERE in_quarantine = 0
  GROUP BY device, window_start, window_end;

  INSERT INTO quarantine SELECT device, celsius, measured, received FROM judged WHERE in_quarantine = 1;

  INSERT INTO clocks SELECT CAST(TIMESTAMPDIFF(SECOND, received, measured) AS BIGINT), 'clocks/' || device FROM readings WHERE is_wrong;
END;
