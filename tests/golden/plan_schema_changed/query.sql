CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/out', 'format' = 'csv');
COMPILE PLAN '@DIR@/plan.json' FOR INSERT INTO o SELECT k, v FROM t;
ALTER TABLE t ADD w INT;
EXECUTE PLAN '@DIR@/plan.json';
SELECT k, v FROM o;
