//! The binary; all code is in the library.

use std::process::ExitCode;

/// Requests make dozens of small allocations, for which this allocator is faster than most systems' own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollkeeper::cli::run()
}
