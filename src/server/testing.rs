//! What the tests of this module share.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kernel::random::Random;

/// Where the log of a test goes.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// What has come since the last time this was asked.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A folder that goes away with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty one.
    pub fn new() -> Self {
        let name = format!("tollkeeper-server-{:032x}", u128::from_be_bytes(Random::system().bytes()));
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
