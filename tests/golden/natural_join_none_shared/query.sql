CREATE TABLE a (id INT, k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
SELECT a.id, d.z FROM a NATURAL JOIN (SELECT w AS z FROM (VALUES 'p') AS e(w)) AS d;
