//! Queries and pipelines against oracles, one module for each subject. They are one program: each
//! test program holds the whole engine, which is slow to link.

mod anti_joins;
mod asof;
mod changelog_files;
mod duckdb;
mod flights;
mod function_calls;
mod hash_joins;
mod join_state;
mod joins_out_of_order;
mod late_rows;
mod live_tables;
mod lookups;
mod nexmark;
mod nexmark_queries;
mod oracle;
mod ordered;
mod outside_connector;
mod partitioned_files;
mod pipeline_joins;
mod python;
mod quiet_inputs;
mod script_statements;
mod session;
mod sharing;
mod splits;
mod state_tables;
mod statements;
mod upserts;
mod workspace;
