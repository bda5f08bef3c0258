//! The command `thalweg`. See `thalweg --help` and docs/cli.md.

/// Workers allocate and free bundles on different threads all the time, which mimalloc is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(thalweg::cli::run(std::env::args_os()))
}
