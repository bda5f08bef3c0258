CREATE TABLE t (id INT, s STRING) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv', 'csv.null-literal' = 'null');
SELECT id,
  PARSE_URL(s, 'PROTOCOL') AS c1,
  PARSE_URL(s, 'HOST') AS c2,
  PARSE_URL(s, 'PATH') AS c3,
  PARSE_URL(s, 'QUERY') AS c4,
  PARSE_URL(s, 'REF') AS c5,
  PARSE_URL(s, 'AUTHORITY') AS c6,
  PARSE_URL(s, 'USERINFO') AS c7,
  PARSE_URL(s, 'FILE') AS c8,
  PARSE_URL(s, 'QUERY', 'k') AS c9,
  PARSE_URL(s, 'PATH', 'k') AS c10,
  PARSE_URL(s, 'host') AS c11
FROM t;
