SELECT PARSE_JSON(j)['a'] AS v FROM (VALUES ('[1]')) AS t(j);
