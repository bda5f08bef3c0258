SELECT PARSE_JSON(j) AS v FROM (VALUES ('1'), ('{')) AS t(j);
