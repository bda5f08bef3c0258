CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/out', 'format' = 'csv');
CREATE VIEW w AS SELECT k, v + 1 AS v FROM t;
COMPILE PLAN '@DIR@/plan.json' FOR INSERT INTO o SELECT k, v FROM w;
DROP VIEW w;
CREATE VIEW w AS SELECT k, v + 100 AS v FROM t;
EXECUTE PLAN '@DIR@/plan.json';
SELECT k, v FROM o;
