//! The command `thalweg`. See `thalweg --help` and docs/cli.md.

mod cli;

/// Workers allocate and free bundles on different threads all the time, which mimalloc is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
