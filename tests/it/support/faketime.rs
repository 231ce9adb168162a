//! The machine's clock as a process sees it, moved by hand: libfaketime between the process and the system.

use std::cell::Cell;
use std::path::PathBuf;

use super::process::Start;
use super::python::skip_for_want_of;

/// Where Debian puts it (`libfaketime`), by architecture.
const PLACES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
];

/// A clock for as many processes as are given it. What has passed for them is still true time, only the date is another.
pub struct FakeClock {
    library: &'static str,
    file: PathBuf,
    offset_s: Cell<i64>,
}

impl FakeClock {
    /// True time to begin with. `None`, and a printed reason, where the library isn't; a failure when
    /// `TOLLKEEPER_TEST_REQUIRE` asks for `faketime`.
    pub fn new(folder: &std::path::Path, what: &str) -> Option<Self> {
        let Some(library) = PLACES.into_iter().find(|place| std::path::Path::new(place).exists()) else {
            skip_for_want_of("faketime", what, "no libfaketime: `apt-get install libfaketime`");
            return None;
        };
        let clock = Self { library, file: folder.join("clock"), offset_s: Cell::new(0) };
        clock.set_s(0);
        Some(clock)
    }

    /// Starts a process by this clock.
    pub fn rule(&self, start: Start) -> Start {
        self.environment().into_iter().fold(start, |start, (name, value)| start.set(name, value))
    }

    /// What a process by this clock has in its environment.
    pub fn environment(&self) -> [(&'static str, &str); 5] {
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            // What waits for so many seconds waits for true ones.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            // It would be left behind in /dev/shm by a process that is killed.
            ("FAKETIME_DISABLE_SHM", "1"),
        ]
    }

    /// So many seconds ahead of true time from now on; negative: behind it.
    pub fn set_s(&self, offset_s: i64) {
        self.offset_s.set(offset_s);
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{offset_s:+}\n")).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// Moves it by so many seconds.
    pub fn advance_s(&self, by_s: i64) {
        self.set_s(self.offset_s.get() + by_s);
    }

    /// The time by it.
    pub fn now(&self) -> tollkeeper::clock::Time {
        tollkeeper::clock::Clock::System.now().plus_ms(self.offset_s.get() * 1_000)
    }
}
