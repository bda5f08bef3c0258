CREATE TABLE requests (
  line    STRING,
  visitor AS SPLIT_INDEX(line, ' ', 0),
  page    AS REGEXP_EXTRACT(line, '"[A-Z]+ ([^ ]+)', 1),
  ts      AS TO_TIMESTAMP(REGEXP_EXTRACT(line, '\[([^ ]+)', 1), 'dd/MMM/yyyy:HH:mm:ss'),
  WATERMARK FOR ts AS ts - INTERVAL '10' MINUTE
) WITH (
  'connector' = 'filesystem',
  'format'    = 'raw',
  'path'      = 'access.log'
);

SELECT
  visitor,
  window_start AS first_request,
  window_end - INTERVAL '30' MINUTE AS last_request,
  COUNT(*) AS requests,
  FIRST_VALUE(page) AS entered_at,
  LAST_VALUE(page) AS left_from
FROM TABLE(SESSION(TABLE requests PARTITION BY visitor, DESCRIPTOR(ts), INTERVAL '30' MINUTE))
GROUP BY visitor, window_start, window_end;
