//! Resources of this process, under the names that Prometheus' own libraries use.

use super::text::Text;

/// Resources of this process; values that this system doesn't provide are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Process {
    resident_bytes: Option<u64>,
    open_files: Option<u64>,
    max_files: Option<u64>,
    cpu_ms: Option<u64>,
}

impl Process {
    /// Reads the values from a few files of the kernel, which takes a moment for each open file.
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

    /// Writes the values and the start of the process.
    pub fn render(&self, started_unix_ms: i64, text: &mut Text) {
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory.", self.resident_bytes),
            ("process_open_fds", "Open files, connections among them.", self.open_files),
            ("process_max_fds", "The most open files that the system allows.", self.max_files),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                text.gauge(name, help, value);
            }
        }
        if let Some(ms) = self.cpu_ms {
            let name = "process_cpu_seconds_total";
            text.family(name, super::Kind::Counter, "Processor time that was used.");
            text.sample(name, &[], format_args!("{}.{:03}", ms / 1_000, ms % 1_000));
        }
        let (seconds, rest) = (started_unix_ms.div_euclid(1_000), started_unix_ms.rem_euclid(1_000));
        text.gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            format_args!("{seconds}.{rest:03}"),
        );
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
fn cpu_ms() -> Option<u64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(u64::try_from(used.tv_sec).ok()? * 1_000 + u64::try_from(used.tv_nsec).ok()? / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
fn cpu_ms() -> Option<u64> {
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
