//! Golden cases of Flink, and random streams against a plain reference.

mod captures;
mod fixture;
mod golden;
mod random;
mod reference;
