SELECT PARSE_JSON(j)[1] AS v FROM (VALUES ('{"a": 1}')) AS t(j);
