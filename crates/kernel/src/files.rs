//! Writing of files as a whole: a file appears completely or not at all.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Links the content of `temporary` to the name `file`, and syncs both to disk. Returns `false` if `file`
/// already exists, and leaves it unchanged. The caller must remove `temporary`.
///
/// # Errors
/// The errors of the file system.
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
    // The entry in the folder must also survive a power failure.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Renames `temporary` to `file`, and syncs both to disk. Returns `false` if `file` already has that content,
/// and leaves it unchanged. In both cases, `temporary` no longer exists afterwards.
///
/// # Errors
/// The errors of the file system.
pub fn replace(temporary: &Path, file: &Path) -> Result<bool> {
    if is_same(temporary, file)? {
        std::fs::remove_file(temporary)?;
        return Ok(false);
    }
    File::open(temporary)?.sync_all()?;
    std::fs::rename(temporary, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Returns `true` if both files exist and have the same content.
fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = match (File::open(one)?, File::open(other)) {
        (one, Ok(other)) => (one, other),
        (_, Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(false),
        (_, Err(error)) => return Err(error),
    };
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left.get(..length) != right.get(..length) || left.is_empty() != right.is_empty() {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        one.consume(length);
        other.consume(length);
    }
}

/// Copies the file, for file systems without hard links. A concurrent reader may see an incomplete file.
fn copy_to_new(temporary: &Path, file: &Path) -> Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    let copied = File::open(temporary).and_then(|mut from| std::io::copy(&mut from, &mut copy));
    if let Err(error) = copied.and_then(|_| copy.sync_all()) {
        // This call created the file, and it is incomplete.
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
                // Both names may refer to the same file.
                std::fs::remove_file(path("temporary")).unwrap();
                assert_eq!(std::fs::read_to_string(&file).unwrap(), "first");
            }
        }
        assert!(publish(&path("missing"), &path("other")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn file_is_replaced_only_by_other_content() {
        let name = format!(
            "tollkeeper-replace-{:032x}",
            u128::from_be_bytes(crate::random::Random::system().bytes())
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let (temporary, file) = (folder.join("temporary"), folder.join("file"));
        let long = "x".repeat(100_000);
        let cases = [
            ("a", true),
            ("a", false),
            ("b", true),
            ("", true),
            ("", false),
            (long.as_str(), true),
            (long.as_str(), false),
            (&format!("{}y", "x".repeat(99_999)), true),
        ];
        for (content, is_new) in cases {
            std::fs::write(&temporary, content).unwrap();
            assert_eq!(replace(&temporary, &file).unwrap(), is_new);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
            assert!(!temporary.exists());
        }
        assert!(replace(&temporary, &file).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
