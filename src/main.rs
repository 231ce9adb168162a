//! The binary: everything is in the library.

use std::process::ExitCode;

/// A request makes some dozens of small allocations; this allocator is faster at them than most systems' own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollkeeper::cli::run()
}
