//! The resources of a process, from Linux's proc(5).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Returns the resident memory in MiB.
pub fn resident_mib(process: u32) -> Result<f64, String> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
    kib.map(|kib| f64::from(kib) / 1024.0).ok_or_else(|| format!("{path} has no VmRSS"))
}

/// Returns the number of open file descriptors.
pub fn descriptors(process: u32) -> Result<f64, String> {
    let path = PathBuf::from(format!("/proc/{process}/fd"));
    let open = std::fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(u32::try_from(open.count()).map_or(f64::INFINITY, f64::from))
}

/// The processor time of each thread of a process, in nanoseconds.
pub struct CpuTimes(BTreeMap<OsString, u64>);

/// Returns the time that each thread has used so far; `None` if the system doesn't report it.
pub fn spent(process: u32) -> Option<CpuTimes> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut spent = BTreeMap::new();
    for thread in threads.flatten() {
        // A thread may have ended in the meantime.
        let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
        spent.insert(thread.file_name(), text.split_whitespace().next()?.parse().ok()?);
    }
    Some(CpuTimes(spent))
}

impl CpuTimes {
    /// Returns the seconds used since `before` by the threads that still exist. A thread that has ended in
    /// the meantime had been idle for a long time.
    pub fn since(&self, before: &Self) -> f64 {
        let more = self.0.iter().map(|(thread, ns)| ns - before.0.get(thread).unwrap_or(&0).min(ns));
        Duration::from_nanos(more.sum()).as_secs_f64()
    }
}

/// Returns the processes of a process group.
pub fn group(leader: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_in = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
        // The name, in parentheses, may contain anything; the group is the third word after it.
        let group = stat.as_ref().and_then(|stat| stat.rsplit_once(')')?.1.split_whitespace().nth(2));
        group.is_some_and(|group| group.parse() == Ok(leader))
    };
    ids.filter(is_in).collect()
}
