CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/out', 'format' = 'csv');
SET 'table.plan.force-recompile' = 'true';
COMPILE PLAN '@DIR@/plan.json' FOR INSERT INTO o SELECT k, v FROM t;
COMPILE PLAN '@DIR@/plan.json' FOR INSERT INTO o SELECT k, v + 1 FROM t;
COMPILE AND EXECUTE PLAN '@DIR@/plan.json' FOR INSERT INTO o SELECT k, v + 2 FROM t;
SELECT k, v FROM o;
