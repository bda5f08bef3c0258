-- The answers to the queries of NEXMark over all events at once, in the SQL of DuckDB.
--
-- Written for clarity and without a look at how the engine computes them. Columns stand as in
-- benches/nexmark. `seq` is the position of a row in the table: the order of arrival, which decides
-- between rows that are equal otherwise.

-- q0
SELECT auction, bidder, price, dateTime, extra FROM bid
-- q1
SELECT auction, bidder, price * 0.908, dateTime, extra FROM bid
-- q2
SELECT auction, price FROM bid WHERE auction % 123 = 0
-- q3
SELECT name, city, state, a.id FROM auction a JOIN person p ON seller = p.id
WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
-- q4
SELECT category, sum(final) // count(*) FROM (
  SELECT id, any_value(category) AS category, max(price) AS final FROM auction a JOIN bid b ON auction = id
  WHERE b.dateTime BETWEEN a.dateTime AND expires GROUP BY id
) GROUP BY category
-- q5
WITH windowed AS (
  SELECT auction, unnest(range(epoch_ms(dateTime) // 2000 * 2000 - 8000, epoch_ms(dateTime) + 1, 2000)) AS start FROM bid
), counted AS (SELECT start, auction, count(*) AS num FROM windowed GROUP BY ALL)
SELECT auction, num FROM counted QUALIFY num = max(num) OVER (PARTITION BY start)
-- q6
WITH closed AS (
  SELECT id, any_value(seller) AS seller, max(price) AS final, max(b.dateTime) AS last FROM auction a JOIN bid b ON auction = id
  WHERE b.dateTime BETWEEN a.dateTime AND expires GROUP BY id
)
SELECT seller, sum(final) OVER ten // count(*) OVER ten FROM closed
WINDOW ten AS (PARTITION BY seller ORDER BY last ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
-- q7
SELECT auction, price, bidder, dateTime, extra FROM bid
QUALIFY price = max(price) OVER (PARTITION BY epoch_ms(dateTime) // 10000)
-- q8
SELECT DISTINCT p.id, name, CAST(make_timestamp_ms(epoch_ms(p.dateTime) // 10000 * 10000) AS TIMESTAMP_MS)
FROM person p JOIN auction a ON seller = p.id AND epoch_ms(p.dateTime) // 10000 = epoch_ms(a.dateTime) // 10000
-- q9
SELECT id, itemName, description, initialBid, reserve, a.dateTime, expires, seller, category, a.extra,
  auction, bidder, price, b.dateTime, b.extra
FROM auction a JOIN bid b ON auction = id WHERE b.dateTime BETWEEN a.dateTime AND expires
QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, b.dateTime, b.seq) = 1
-- q11
WITH marked AS (
  SELECT *, dateTime - lag(dateTime) OVER own > INTERVAL 10 SECOND AS breaks FROM bid
  WINDOW own AS (PARTITION BY bidder ORDER BY dateTime)
), numbered AS (
  SELECT *, count(*) FILTER (WHERE breaks) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM marked
)
SELECT bidder, count(*), min(dateTime), max(dateTime) + INTERVAL 10 SECOND FROM numbered GROUP BY bidder, session
-- q13
SELECT auction, bidder, price, dateTime, 'value ' || auction % 10000 FROM bid
-- q14
SELECT auction, bidder, price * 0.908, CASE
    WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(dateTime) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END,
  dateTime, extra, len(list_filter(string_split(extra, ''), lambda letter: letter = 'c'))
FROM bid WHERE price * 908 > 1000000000 AND price * 908 < 50000000000
-- q15
SELECT strftime(dateTime, '%Y-%m-%d'),
  count(*),
  count(*) FILTER (WHERE price < 10000),
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(*) FILTER (WHERE price >= 1000000),
  count(DISTINCT bidder),
  count(DISTINCT bidder) FILTER (WHERE price < 10000),
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000),
  count(DISTINCT auction),
  count(DISTINCT auction) FILTER (WHERE price < 10000),
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) FROM bid GROUP BY 1
-- q16
SELECT channel, strftime(dateTime, '%Y-%m-%d'), max(strftime(dateTime, '%H:%M')),
  count(*),
  count(*) FILTER (WHERE price < 10000),
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(*) FILTER (WHERE price >= 1000000),
  count(DISTINCT bidder),
  count(DISTINCT bidder) FILTER (WHERE price < 10000),
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000),
  count(DISTINCT auction),
  count(DISTINCT auction) FILTER (WHERE price < 10000),
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid GROUP BY 1, 2
-- q17
SELECT auction, strftime(dateTime, '%Y-%m-%d'),
  count(*),
  count(*) FILTER (WHERE price < 10000),
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(*) FILTER (WHERE price >= 1000000), min(price), max(price), sum(price) // count(*), sum(price)
FROM bid GROUP BY 1, 2
-- q18
SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, seq DESC) = 1
-- q19
SELECT auction, bidder, price, channel, url, dateTime, extra,
  row_number() OVER (PARTITION BY auction ORDER BY price DESC, seq) AS rank
FROM bid QUALIFY rank <= 10
-- q20
SELECT auction, bidder, price, channel, url, b.dateTime, b.extra,
  itemName, description, initialBid, reserve, a.dateTime, expires, seller, category, a.extra
FROM bid b JOIN auction a ON auction = id WHERE category = 10
-- q21
SELECT auction, bidder, price, channel, coalesce(
    CAST(list_position(['Apple', 'Google', 'Facebook', 'Baidu'], channel) - 1 AS VARCHAR),
    split_part(url, '&channel_id=', 2)) AS channel_id
FROM bid WHERE channel_id <> ''
-- q22
SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6) FROM bid
-- q23
SELECT auction, bidder, price, channel, url, b.dateTime, b.extra,
  name, emailAddress, creditCard, city, state, p.dateTime, p.extra,
  itemName, description, initialBid, reserve, a.dateTime, expires, category
FROM bid b JOIN person p ON p.id = bidder JOIN auction a ON seller = bidder
