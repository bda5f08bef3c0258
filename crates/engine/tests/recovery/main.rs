//! Jobs that are killed, and what becomes of their output. The real binary runs, since
//! a killed process is what recovery is for.
//!
//! | module | holds |
//! |---|---|
//! | `jobs` | a folder with inputs and a job that runs over them; what of its output is visible |
//! | `cells` | which queries are killed under which contract, and what equality means for each |
//! | `identity` | resumes under options that would change what state means |
//! | `kills` | jobs that are killed at random moments until they end |
//! | `lifecycle` | stops, locks, damaged and foreign snapshots, restarts, full disks |
//! | `starts` | what a start may change, which snapshots a resume takes, and whose outputs they are |
//! | `killed` | jobs of this process that are killed where a test wants it; the golden cases use it as well |
//! | `sequences` | random sequences of all that may happen to a job, against a model |
//! | `power` | whole jobs on a machine that goes off |
//! | `endings` | signals in every state of a job, drains, and a resume behind an end |
//! | `letters` | dead letters of jobs that are killed |
//! | `at_once` | several jobs of a file that run at the same time |
//! | `golden_snapshots` | snapshots of earlier versions, from which jobs of this one resume |

mod at_once;
mod cells;
mod endings;
mod golden_snapshots;
mod identity;
mod jobs;
mod killed;
mod kills;
mod letters;
mod lifecycle;
mod power;
mod sequences;
mod starts;
