//! Golden cases of Flink, and random streams against a plain reference.

mod captures;
mod doubles;
mod fixture;
mod golden;
mod random;
mod reference;
