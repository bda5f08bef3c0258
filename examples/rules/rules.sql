-- Rules come as a stream, and apply to the events that follow them.
SET 'execution.checkpointing.dir' = '${work}/snapshots';
SET 'execution.checkpointing.interval' = '200 ms';

CREATE TABLE events (
  device STRING, kind STRING, reading DOUBLE, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'
);

-- A rule is announced, changed and withdrawn by messages with its name. Rules are rare: after 5 s of silence, when all of them were
-- read, events no longer wait for them.
CREATE TABLE rule_changes (
  rule STRING, kind STRING, above DOUBLE, is_active BOOLEAN, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'kafka', 'topic' = 'rules', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'scan.watermark.idle-timeout' = '5 s'
);

-- When each rule was first announced.
CREATE VIEW first_rules AS
SELECT rule, ts
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rule ORDER BY ts ASC) AS n FROM rule_changes)
WHERE n = 1;

-- What each rule says at a time.
CREATE VIEW rules AS
SELECT rule, kind, above, is_active, ts
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rule ORDER BY ts DESC) AS n FROM rule_changes)
WHERE n = 1;

-- The broadcast: every rule that was announced by then, for every event. A rule lives for a year.
CREATE VIEW candidates AS
SELECT e.device, e.kind, e.reading, e.ts, f.rule
FROM events AS e JOIN first_rules AS f ON e.ts BETWEEN f.ts AND f.ts + INTERVAL '365' DAY(3);

CREATE TABLE alarms (rule STRING, device STRING, reading DOUBLE, ts TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 'alarms', 'properties.bootstrap.servers' = '${servers}', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'alarms',
  -- Flink's transactions last an hour unless it says otherwise, and brokers allow 15 minutes.
  'properties.transaction.timeout.ms' = '900000'
);

INSERT INTO alarms
SELECT c.rule, c.device, c.reading, c.ts
FROM candidates AS c JOIN rules FOR SYSTEM_TIME AS OF c.ts AS r ON c.rule = r.rule
WHERE r.is_active AND r.kind = c.kind AND c.reading > r.above;
