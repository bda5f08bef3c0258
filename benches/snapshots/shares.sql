-- A count and a sum for each of so many keys, of which as many as `changing` get rows all the time.
-- --param keys=2000000, changing=2000000, rows=20000000 (events), rate=unlimited
CREATE TABLE first_rows (k BIGINT, v BIGINT)
  WITH ('connector' = 'datagen', 'number-of-rows' = '${keys}', 'rows-per-second' = 'unlimited',
        'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '99999999',
        'fields.v.min' = '0', 'fields.v.max' = '1000000');
CREATE TABLE updates (k BIGINT, v BIGINT)
  WITH ('connector' = 'datagen', 'number-of-rows' = '${rows}', 'rows-per-second' = '${rate}', 'seed' = '7',
        'fields.k.min' = '0', 'fields.k.max' = '${changing}', 'fields.v.min' = '0', 'fields.v.max' = '1000000');
CREATE TABLE sums (k BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'blackhole');
INSERT INTO sums
  SELECT k, COUNT(*), SUM(v) FROM (SELECT * FROM first_rows UNION ALL SELECT * FROM updates) GROUP BY k;
