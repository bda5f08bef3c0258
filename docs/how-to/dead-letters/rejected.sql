CREATE TABLE rejected (`file` STRING, `line` BIGINT, reason STRING, raw STRING)
WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = 'rejected.ndjson');

SELECT `line`, reason FROM rejected;
