//! Resources of this process, under the names that Prometheus' own libraries use.

use super::text::{Registered, seconds};
use kernel::clock::Time;

/// Resources of this process. Values that the operating system doesn't provide are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Process {
    resident_bytes: Option<u64>,
    open_files: Option<u64>,
    max_files: Option<u64>,
    cpu_ms: Option<i64>,
}

impl Process {
    /// Reads the values from `/proc` and with system calls. The time grows slightly with the number of open
    /// files.
    pub fn read() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident_kib = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let open_files = std::fs::read_dir("/proc/self/fd").ok().map(|files| {
            // The directory itself is open while it is read.
            u64::try_from(files.count()).unwrap_or(u64::MAX).saturating_sub(1)
        });
        Self {
            resident_bytes: resident_kib.map(|kib| kib * 1_024),
            open_files,
            max_files: max_files(),
            cpu_ms: cpu_ms(),
        }
    }

    /// Adds the values and the start time of the process.
    pub fn add_to(&self, started_at: Time, values: &Registered) {
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory.", self.resident_bytes),
            ("process_open_fds", "Open files, including connections.", self.open_files),
            ("process_max_fds", "Maximum number of open files.", self.max_files),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                values.gauge(name, help, value);
            }
        }
        if let Some(ms) = self.cpu_ms {
            values.count_seconds("process_cpu_seconds_total", "CPU time used.", seconds(ms));
        }
        let help = "When the process started, in seconds since 1970.";
        values.seconds("process_start_time_seconds", help, started_at.unix_ms());
    }
}

#[cfg(target_os = "linux")]
fn max_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(target_os = "linux"))]
fn max_files() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn cpu_ms() -> Option<i64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(used.tv_sec * 1_000 + used.tv_nsec / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
fn cpu_ms() -> Option<i64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_values_are_read() {
        let before = Process::read();
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/proc/self/status").unwrap()).collect();
        let after = Process::read();
        assert!(
            after.open_files.unwrap() >= 20 && after.open_files <= after.max_files,
            "{before:?} {after:?}"
        );
        assert!(after.resident_bytes.unwrap() > 1_000_000, "{after:?}");
        assert!(after.cpu_ms >= before.cpu_ms && after.cpu_ms.is_some());
        drop(files);
    }
}
