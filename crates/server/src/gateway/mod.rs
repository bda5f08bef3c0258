//! The SQL gateway of Apache Flink, so that its clients work here: sql-client, the JDBC driver,
//! dbt-flink-adapter, and whatever else speaks that interface.
//!
//! | module | holds |
//! |---|---|
//! | `http` | addresses and bodies of the interface, versions V1 to V4 |
//! | `registry` | all sessions, and how much is in work |
//! | `session` | what a client has declared and set |
//! | `operation` | a statement that was sent, and how far it is |
//! | `statement` | what each statement does |
//! | `jobs` | INSERTs become jobs of the server; SHOW JOBS, STOP JOB |
//! | `command` | the statements about jobs, which the engine does not know |
//! | `rows` | rows of a result on their way to the client |
//! | `logical_type` | types as the interface writes them |
//! | `error` | errors as the interface writes them |
//!
//! # Invariants
//! - A session is an engine's session with settings and declarations. An INSERT becomes a job of
//!   the server, with the declarations of its session in front, and survives the session and the
//!   server. A query lives as long as its operation.
//! - Rows of a query wait in bounded memory: its job waits for a client that is slow.
//! - The page of rows that was read last can be read again, so that a lost answer loses no rows.
//! - Whoever may speak here may do what the role `write` may: the guard lets nobody else in.
//!
//! What it does not do: scripts in application mode, jars, and catalogs of Java.

mod command;
pub mod error;
mod http;
mod jobs;
mod logical_type;
mod materialized;
mod operation;
mod registry;
mod rows;
mod session;
mod statement;

pub use http::router;
