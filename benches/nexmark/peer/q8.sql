-- Who came and sold within the same ten seconds.

CREATE TABLE person (
  id BIGINT, name VARCHAR, city VARCHAR, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'person', ${events});

CREATE TABLE auction (
  id BIGINT, seller BIGINT, category BIGINT, initialBid BIGINT, itemName VARCHAR, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND
) WITH ('connector' = 'nexmark', 'kind' = 'auction', ${events});

SELECT P.id, P.name, P.endtime
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS P
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
