-- Who came and sold within ten seconds, every ten milliseconds.
CREATE TABLE person (
  id BIGINT, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'person', ${persons});

CREATE TABLE auction (
  seller BIGINT, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'auction', ${auctions});

SELECT P.id, P.window_end
FROM (
  SELECT id, window_start, window_end
  FROM TABLE(HOP(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '0.01' SECOND, INTERVAL '10' SECOND))
  GROUP BY id, window_start, window_end
) AS P
JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(HOP(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '0.01' SECOND, INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS A
ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end;
