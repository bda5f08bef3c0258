CREATE TABLE a (id INT, k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in.csv', 'format' = 'csv');
CREATE TABLE b (w STRING, k STRING, id INT) WITH ('connector' = 'filesystem', 'path' = '@DIR@/in2.csv', 'format' = 'csv');
SELECT * FROM a JOIN b USING (id, id);
