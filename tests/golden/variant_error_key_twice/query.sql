SELECT PARSE_JSON(j) AS v FROM (VALUES ('{"a": 1, "a": 2}')) AS t(j);
