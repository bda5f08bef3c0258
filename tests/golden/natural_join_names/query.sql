CREATE TABLE a (id INT, k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TABLE b (w STRING, k STRING, id INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv');
SELECT a.k, b.id AS bid, v + 1 AS n, w FROM a NATURAL JOIN b WHERE a.k = 'a';
