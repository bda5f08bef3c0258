//! What people see of a job, as functions of readings.

mod cases;
mod conditions;
mod exposition;
mod history;
mod jobs;
mod numbers;
mod page;
mod random;
