use proptest::prelude::*;
use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

use super::formatted;
use crate::parser::FlinkDialect;

fn laid_out(text: &str) -> String {
    formatted(text).expect(text)
}

/// Tokens and comments, without white space.
fn tokens(text: &str) -> Vec<Token> {
    let tokens = Tokenizer::new(&FlinkDialect, text).tokenize().expect(text);
    let counts = |token: Token| match token {
        Token::Whitespace(Whitespace::SingleLineComment { comment, .. }) => {
            let comment = comment.trim_end().to_owned();
            Some(Token::Whitespace(Whitespace::SingleLineComment {
                comment,
                prefix: String::new(),
            }))
        }
        Token::Whitespace(Whitespace::MultiLineComment(_)) => Some(token),
        Token::Whitespace(_) => None,
        token => Some(token),
    };
    tokens.into_iter().filter_map(counts).collect()
}

fn check(text: &str) -> String {
    let once = laid_out(text);
    assert_eq!(tokens(text), tokens(&once), "{text}\n---\n{once}");
    assert_eq!(laid_out(&once), once, "twice is as once");
    once
}

#[test]
fn what_fits_into_a_line_stands_in_one() {
    assert_eq!(check("SELECT   a ,b\nFROM t\nWHERE a=1 ;"), "SELECT a, b FROM t WHERE a = 1;\n");
    assert_eq!(
        check("select count( * ),f (x), -1, a+b, x.y . z"),
        "select count(*), f (x), -1, a+b, x.y.z\n"
    );
    assert_eq!(check(""), "");
    assert_eq!(check("MAP<STRING, ARRAY<INT>>"), "MAP<STRING, ARRAY<INT>>\n");
}

#[test]
fn a_long_query_has_a_line_for_each_clause_and_item() {
    let text = "INSERT INTO totals SELECT item, SUM(amount) AS total, CASE WHEN SUM(amount) > 1000 THEN 'large' \
                WHEN SUM(amount) > 100 THEN 'medium' WHEN SUM(amount) > 10 THEN 'small' ELSE 'tiny' END AS size \
                FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) LEFT JOIN items AS i \
                ON i.id = item WHERE amount BETWEEN 1 AND 2 AND item IS DISTINCT FROM 'tea' OR item IN \
                (SELECT item FROM others) AND LEFT(item, 2) = 'te' GROUP BY item, window_start, window_end;";
    let expected = "\
INSERT INTO totals
SELECT
  item,
  SUM(amount) AS total,
  CASE
    WHEN SUM(amount) > 1000 THEN 'large'
    WHEN SUM(amount) > 100 THEN 'medium'
    WHEN SUM(amount) > 10 THEN 'small'
    ELSE 'tiny'
  END AS size
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))
LEFT JOIN items AS i ON i.id = item
WHERE amount BETWEEN 1 AND 2
  AND item IS DISTINCT FROM 'tea'
  OR item IN (SELECT item FROM others)
  AND LEFT(item, 2) = 'te'
GROUP BY item, window_start, window_end;
";
    assert_eq!(check(text), expected);
}

#[test]
fn a_table_has_a_line_for_each_column_and_option() {
    let text = "CREATE TABLE orders (item STRING, amount INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - \
                INTERVAL '5' SECOND) WITH ('connector'='filesystem','format'='csv','path'='orders/','source.monitor-interval'='1 s');";
    let expected = "\
CREATE TABLE orders (
  item STRING,
  amount INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'format' = 'csv',
  'path' = 'orders/',
  'source.monitor-interval' = '1 s'
);
";
    assert_eq!(check(text), expected);
}

#[test]
fn comments_and_blank_lines_between_statements_stay() {
    let text = "-- first\n\n\n\n/* second\n   line */\nSET 'a' = 'b'; -- why\nSET 'c'='d';\n\nSELECT a, -- the key\n\
                -- alone\n b /* inside */ FROM t /*+ OPTIONS('x'='y') */\n-- at the end";
    let expected = "\
-- first

/* second
   line */
SET 'a' = 'b'; -- why
SET 'c' = 'd';

SELECT
  a, -- the key
  -- alone
  b /* inside */
FROM t /*+ OPTIONS('x'='y') */
-- at the end
";
    assert_eq!(check(text), expected);
}

#[test]
fn the_statements_of_a_set_stand_inside_of_it() {
    let text =
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END; SELECT 1";
    let expected = "\
EXECUTE STATEMENT SET BEGIN
  INSERT INTO a SELECT 1;
  INSERT INTO b SELECT 2;
END;
SELECT 1
";
    assert_eq!(check(text), expected);
}

#[test]
fn what_is_wrong_is_laid_out_as_well_or_refused() {
    assert_eq!(check("SELECT (a, b FROM ) x)"), "SELECT (a, b FROM) x)\n");
    assert!(formatted("SELECT 'open").is_err());
    let deep = format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    check(&deep);
    for word in ["FROM ", "SELECT 1 ", "-- c\n", "(", "a,"] {
        laid_out(&word.repeat(50_000));
    }
}

/// Texts of tokens that mean something to a layout, with all kinds of white space between them.
fn texts() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        proptest::sample::select(vec![
            "SELECT",
            "FROM",
            "WHERE",
            "GROUP BY",
            "UNION ALL",
            "LEFT JOIN",
            "ON",
            "AND",
            "OR",
            "BETWEEN",
            "CASE",
            "WHEN",
            "THEN",
            "ELSE",
            "END",
            "EXECUTE STATEMENT SET BEGIN",
            "VALUES",
            "DISTINCT",
            "(",
            ")",
            "[",
            "]",
            ",",
            ",",
            ";",
            ".",
            "=",
            "+",
            "-",
            "<",
            ">",
        ]),
        proptest::sample::select(vec![
            "a",
            "b",
            "long_name_of_a_column_that_takes_much_room",
            "`c d`",
            "1",
            "1.5",
            "'text'",
            "'two\n lines'",
            "-- comment\n",
            "--\n",
            "/* block */",
            "/* two\n lines */",
            "/*+ BROADCAST(t) */",
        ]),
    ];
    let space = proptest::sample::select(vec![" ", " ", "\n", "\n\n", "\t", "  \n  "]);
    let pairs = proptest::collection::vec((token, space), 0..60);
    pairs.prop_map(|pairs| pairs.into_iter().flat_map(|(token, space)| [token, space]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_text_keeps_its_tokens_and_is_laid_out_once(text in texts()) {
        check(&text);
    }
}
