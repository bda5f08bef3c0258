SELECT v, COUNT(*) AS n FROM (SELECT PARSE_JSON(j) AS v FROM (VALUES ('{"a": 1, "b": 2}'), ('{"b": 2,"a":1}'), ('1'), (CAST(NULL AS STRING))) AS t(j)) GROUP BY v;
