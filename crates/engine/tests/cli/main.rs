//! The command line as its users meet it: what is printed where, exit statuses, signals, pipes.
//!
//! Every test starts the binary in a folder of its own.

mod at_once;
mod bench;
mod clock;
mod errors;
mod inputs;
mod limits;
mod outputs;
mod patterns;
mod results;
mod signals;
mod snapshots;
mod sql_tests;
mod support;
