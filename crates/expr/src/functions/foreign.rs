//! Functions of other dialects, and what to write here in their place; and those of Flink that
//! stand in one place only.

/// What says the same here as a function of PostgreSQL, DuckDB, Snowflake, Spark or SQL Server.
pub(super) fn instead(name: &str) -> Option<&'static str> {
    Some(match name {
        "DATE_TRUNC" | "TRUNC" | "DATETIME_TRUNC" | "TIMESTAMP_TRUNC" => {
            "write FLOOR(time TO HOUR); to group by such a time, TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), INTERVAL '1' HOUR))"
        }
        "TIME_BUCKET" | "DATE_BIN" => {
            "group by a window: TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), INTERVAL '5' MINUTE))"
        }
        "SOURCE_WATERMARK" => {
            "it stands alone behind WATERMARK FOR … AS, in a table whose connector supplies watermarks"
        }
        "MEDIAN" => "write PERCENTILE(x, 0.5)",
        "PERCENTILE_CONT" | "PERCENTILE_DISC" | "QUANTILE" | "QUANTILE_CONT"
        | "APPROX_QUANTILE" | "APPROX_PERCENTILE" => "write PERCENTILE(x, 0.9)",
        "STRING_AGG" | "GROUP_CONCAT" | "STRING_CONCAT" => "write LISTAGG(x, ', ')",
        "ARRAY_LENGTH" | "ARRAY_SIZE" | "LIST_LENGTH" => "write CARDINALITY(x)",
        "LIST" | "COLLECT_LIST" => "write ARRAY_AGG(x)",
        "COUNT_IF" | "COUNTIF" => "write COUNT(*) FILTER (WHERE condition)",
        "ANY_VALUE" | "ARBITRARY" => "write MIN(x)",
        "NVL" | "ISNULL" => "write IFNULL(x, y)",
        "IIF" => "write IF(condition, x, y)",
        "LEN" | "LENGTH" => "write CHAR_LENGTH(x)",
        "TO_CHAR" | "STRFTIME" | "FORMAT_DATETIME" | "FORMAT_TIMESTAMP" => {
            "write DATE_FORMAT(time, 'yyyy-MM-dd HH:mm')"
        }
        "STRPTIME" | "PARSE_TIMESTAMP" | "STR_TO_DATE" => {
            "write TO_TIMESTAMP(text, 'yyyy-MM-dd HH:mm')"
        }
        "DATE_PART" | "DATEPART" => "write EXTRACT(HOUR FROM time)",
        "DATEDIFF" | "DATE_DIFF" | "TIMESTAMP_DIFF" => "write TIMESTAMPDIFF(DAY, from, to)",
        "DATEADD" | "DATE_ADD" | "DATE_SUB" | "TIMESTAMP_ADD" => {
            "write time + INTERVAL '1' DAY, or TIMESTAMPADD(DAY, 1, time)"
        }
        "GETDATE" | "SYSDATE" | "SYSDATETIME" => "write CURRENT_TIMESTAMP",
        "EPOCH" => "write UNIX_TIMESTAMP(text)",
        "REGEXP_MATCHES" => "write REGEXP_LIKE(text, pattern)",
        "SPLIT_PART" => "write SPLIT_INDEX(text, separator, 0): the first part is 0",
        "STRPOS" | "CHARINDEX" => "write POSITION(part IN text)",
        "TO_NUMBER" => "write CAST(text AS DECIMAL(10, 2))",
        "RANDOM" => "write RAND()",
        "GEN_RANDOM_UUID" | "NEWID" => "write UUID()",
        _ => return None,
    })
}
