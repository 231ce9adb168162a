//! What a process uses, as Linux tells it (proc(5)).

use std::path::PathBuf;

/// Resident memory in MiB.
pub fn resident_mib(process: u32) -> Result<f64, String> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
    kib.map(|kib| f64::from(kib) / 1024.0).ok_or_else(|| format!("{path} names no VmRSS"))
}

/// Open file descriptors.
pub fn descriptors(process: u32) -> Result<f64, String> {
    let path = PathBuf::from(format!("/proc/{process}/fd"));
    let open = std::fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(u32::try_from(open.count()).map_or(f64::INFINITY, f64::from))
}
