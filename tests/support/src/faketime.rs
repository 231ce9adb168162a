//! A fake clock for processes, controlled by the test. Processes preload libfaketime, which replaces the
//! system clock.

use std::cell::Cell;
use std::path::PathBuf;

use super::process::Start;
use super::python::skip_without;

/// The paths of the library in Debian's package `libfaketime`, by architecture.
const LIBRARY_PATHS: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
];

/// A clock for any number of processes. It changes the date, but not how fast time passes.
pub struct FakeClock {
    library: &'static str,
    file: PathBuf,
    offset_s: Cell<i64>,
}

impl FakeClock {
    /// Creates a clock that starts at the real time. If the library is missing, prints the reason and returns
    /// `None`, or fails if `TOLLKEEPER_TEST_REQUIRE` contains `faketime`.
    pub fn new(folder: &std::path::Path, what: &str) -> Option<Self> {
        let Some(library) = LIBRARY_PATHS.into_iter().find(|place| std::path::Path::new(place).exists())
        else {
            skip_without("faketime", what, "libfaketime is missing: `apt-get install libfaketime`");
            return None;
        };
        let clock = Self { library, file: folder.join("clock"), offset_s: Cell::new(0) };
        clock.set_s(0);
        Some(clock)
    }

    /// Returns a start that runs the process on this clock.
    pub fn rule(&self, start: Start) -> Start {
        self.environment().into_iter().fold(start, |start, (name, value)| start.set(name, value))
    }

    /// Returns the environment variables of a process on this clock.
    pub fn environment(&self) -> [(&'static str, &str); 5] {
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            // Timeouts use real time.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            // A killed process would leave its shared memory in /dev/shm.
            ("FAKETIME_DISABLE_SHM", "1"),
        ]
    }

    /// Sets the clock this many seconds ahead of the real time, or behind it if negative.
    pub fn set_s(&self, offset_s: i64) {
        self.offset_s.set(offset_s);
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{offset_s:+}\n")).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// Advances the clock by this many seconds.
    pub fn advance_s(&self, by_s: i64) {
        self.set_s(self.offset_s.get() + by_s);
    }

    /// Returns the time of this clock.
    pub fn now(&self) -> tollkeeper::clock::Time {
        tollkeeper::clock::Clock::System.now().plus_ms(self.offset_s.get() * 1_000)
    }
}
