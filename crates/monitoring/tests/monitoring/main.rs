//! What people see of a job, as functions of readings.

mod cases;
mod conditions;
mod exposition;
mod history;
mod numbers;
mod random;
mod top;
