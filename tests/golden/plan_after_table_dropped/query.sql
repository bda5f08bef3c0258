CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/out', 'format' = 'csv');
COMPILE PLAN '@DIR@/plan.json' FOR STATEMENT SET BEGIN INSERT INTO o SELECT k, v FROM t WHERE v > 1; INSERT INTO o SELECT k, -v FROM t WHERE v = 1; END;
DROP TABLE t;
EXECUTE PLAN 'file://@DIR@/plan.json';
SELECT k, v FROM o;
