SELECT PARSE_JSON(j) = PARSE_JSON(k) AS e FROM (VALUES ('1', '1.0'), ('[1]', '[1]'), ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}')) AS t(j, k);
