SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE src (id INT NOT NULL) WITH ('connector' = 'datagen', 'number-of-rows' = '3',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3');
CREATE TABLE snk (id INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'sql-client.csv');
SHOW TABLES;
DESCRIBE src;
SELECT id, COUNT(*) AS n FROM src GROUP BY id;
SET 'table.dml-sync' = 'true';
INSERT INTO snk SELECT id FROM src;
SHOW JOBS;
SELECT nope FROM src;
