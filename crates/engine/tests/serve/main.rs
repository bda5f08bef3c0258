//! A real server in a process of its own: its life cycle, what it survives, and who it keeps out.

#![cfg(feature = "server")]

mod answers;
mod attacks;
mod cancelled;
mod cycles;
mod demo;
mod gateway;
mod golden;
mod jobs;
mod kills;
mod letters;
mod live;
mod otlp;
mod packages;
mod rows;
mod statements;
mod support;
mod trials;
mod upgrades;
mod watching;
