//! Files that appear whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Gives the content of `temporary` the name `file` as well, unless that exists, and syncs both to disk. Returns `false`
/// if `file` exists already; it then stays as it is. The caller removes `temporary`.
///
/// # Errors
/// Those of the file system.
pub fn publish(temporary: &Path, file: &Path) -> Result<bool> {
    File::open(temporary)?.sync_all()?;
    let published = match std::fs::hard_link(temporary, file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => copy_to_new(temporary, file),
        linked => linked,
    };
    match published {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        other => other?,
    }
    // The entry of the folder must survive a power cut too.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// For file systems without hard links. A concurrent reader may see the file while it is being written.
fn copy_to_new(temporary: &Path, file: &Path) -> Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    let copied = File::open(temporary).and_then(|mut from| std::io::copy(&mut from, &mut copy));
    if let Err(error) = copied.and_then(|_| copy.sync_all()) {
        // It is ours, and incomplete.
        std::fs::remove_file(file).ok();
        return Err(error);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_never_replaced() {
        let name = format!(
            "tollkeeper-publish-{:032x}",
            u128::from_be_bytes(crate::random::Random::system().bytes())
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        let publishers: [fn(&Path, &Path) -> Result<bool>; 2] =
            [publish, |from, to| match copy_to_new(from, to) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                other => other.map(|()| true),
            }];
        for (index, publish) in publishers.into_iter().enumerate() {
            let file = path(&format!("file{index}"));
            for (content, is_new) in [("first", true), ("second", false)] {
                std::fs::write(path("temporary"), content).unwrap();
                assert_eq!(publish(&path("temporary"), &file).unwrap(), is_new);
                // It may be the same file under two names.
                std::fs::remove_file(path("temporary")).unwrap();
                assert_eq!(std::fs::read_to_string(&file).unwrap(), "first");
            }
        }
        assert!(publish(&path("missing"), &path("other")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
