//! The two secrets that the service keeps in files, the master key and the service token
//! (docs/contract/operators.md#secret-files), and credentials that operators store in files.
//!
//! Both files are created at the first start, readable only by the owner. Processes that start at the same
//! time use the same secret: a new secret is written to a temporary file and then hard-linked to its path,
//! which fails if the path exists.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

use crate::files::publish;
use crate::random::Random;
use crate::secrets::token::MailToken;
use crate::secrets::{SECRET_BYTES, Secret, base62};

/// Maximum number of bytes that are read from a secret file. A secret is a single line.
const MAX_FILE_BYTES: u64 = 4_096;
/// The rule for service tokens, for error messages. A shorter token could be guessed.
pub const SERVICE_TOKEN_RULE: &str = "a secret of at least 20 characters (for instance from \
     `openssl rand -hex 24`): letters, digits and ASCII signs, without spaces, at most 512";
/// The length of a service token.
const SERVICE_TOKEN_CHARS: RangeInclusive<usize> = 20..=512;
/// The rule for credentials, for error messages.
pub const CREDENTIAL_RULE: &str = "one line of 1 to 8192 letters, digits and ASCII signs, without spaces";
/// Maximum length of a credential.
const MAX_CREDENTIAL_BYTES: usize = 8_192;

/// Returns the master key from the environment (`env_base64`, the value of `TOLLKEEPER_MASTER_KEY`) or from
/// `file`. If neither exists, a new key is written to `file`.
///
/// # Errors
/// A sentence for the operator.
pub fn load_or_create_master_key(
    env_base64: Option<&Secret>,
    file: &Path,
    random: &Random,
) -> Result<[u8; SECRET_BYTES], String> {
    if let Some(secret) = env_base64 {
        return key_from_base64(secret.expose().as_bytes())
            .ok_or_else(|| "TOLLKEEPER_MASTER_KEY: must be 32 bytes in base64 (44 characters)".to_owned());
    }
    let new: [u8; SECRET_BYTES] = random.bytes();
    let content = read_or_create(file, "master key", &new, random)?;
    key_from_file(&content, "master key", file)
}

/// Returns the master key that is being replaced, if one is configured, from the environment or from `file`,
/// which must exist.
///
/// # Errors
/// A sentence for the operator.
pub fn load_previous_master_key(
    env_base64: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Option<[u8; SECRET_BYTES]>, String> {
    const WHAT: &str = "previous master key";
    if let Some(secret) = env_base64 {
        let key = key_from_base64(secret.expose().as_bytes());
        return key.map(Some).ok_or_else(|| {
            "TOLLKEEPER_MASTER_KEY_PREVIOUS: must be 32 bytes in base64 (44 characters)".to_owned()
        });
    }
    let Some(file) = file else { return Ok(None) };
    let content = read(file, WHAT).map_err(|error| format!("{WHAT} file {}: {error}", file.display()))?;
    key_from_file(&content, WHAT, file).map(Some)
}

fn key_from_file(content: &[u8], what: &str, file: &Path) -> Result<[u8; SECRET_BYTES], String> {
    let key = <[u8; SECRET_BYTES]>::try_from(content).ok().or_else(|| key_from_base64(content));
    key.ok_or_else(|| {
        format!(
            "{what} file {}: contains {} bytes; it must contain 32 random bytes, raw or in base64 (44 \
             characters)",
            file.display(),
            content.len()
        )
    })
}

/// Returns the `configured` service token or the token in `file`. If neither exists, a new token (`svc_` and
/// 43 base62 characters) is written to `file` with a newline.
///
/// # Errors
/// A sentence for the operator.
pub fn load_or_create_service_token(
    configured: Option<&Secret>,
    file: &Path,
    random: &Random,
) -> Result<Secret, String> {
    if let Some(secret) = configured {
        return service_token(secret.expose())
            .map_err(|problem| format!("TOLLKEEPER_SERVICE_TOKEN: expected {problem}"));
    }
    let new = format!("svc_{}\n", base62::encode(random.bytes()));
    let content = read_or_create(file, "service token", new.as_bytes(), random)?;
    let text = String::from_utf8(content).unwrap_or_default();
    service_token(text.trim())
        .map_err(|problem| format!("service token file {}: expected {problem}", file.display()))
}

/// Returns the token of the first account from `file`. If the file doesn't exist, a new token is written to
/// it with a newline.
///
/// # Errors
/// A sentence for the operator.
pub fn load_or_create_first_account_token(file: &Path, random: &Random) -> Result<MailToken, String> {
    let new = format!("{}\n", MailToken::generate(random).expose());
    let content = read_or_create(file, FIRST_ACCOUNT, new.as_bytes(), random)?;
    first_account_token(&content).ok_or_else(|| {
        format!("{FIRST_ACCOUNT} file {}: contains no token: remove it and restart", file.display())
    })
}

/// Returns the token of the first account from `file`; `None` if the file doesn't exist or contains no token.
///
/// # Errors
/// A sentence for the operator.
pub fn read_first_account_token(file: &Path) -> Result<Option<MailToken>, String> {
    match read(file, FIRST_ACCOUNT) {
        Ok(content) => Ok(first_account_token(&content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{FIRST_ACCOUNT} file {}: {error}", file.display())),
    }
}

const FIRST_ACCOUNT: &str = "first account's token";

fn first_account_token(content: &[u8]) -> Option<MailToken> {
    std::str::from_utf8(content).ok().and_then(|text| MailToken::parse(text.trim_end()))
}

/// Checks a token for the service listener.
///
/// # Errors
/// [`SERVICE_TOKEN_RULE`].
pub fn service_token(text: &str) -> Result<Secret, &'static str> {
    // The token is sent in a header (RFC 6750, section 2.1), which doesn't allow other characters.
    if !SERVICE_TOKEN_CHARS.contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(SERVICE_TOKEN_RULE);
    }
    Ok(Secret::new(text))
}

/// Reads a file with a credential for another server. The warning is set if other users can read the file.
///
/// # Errors
/// A sentence for the operator, without the content.
pub fn read_credential(file: &Path) -> Result<(Secret, Option<String>), String> {
    let name = file.display();
    let failed = |error: std::io::Error| format!("the file {name} can't be read: {error}");
    let opened = File::open(file).map_err(failed)?;
    let warning = open_mode(&opened)
        .map_err(failed)?
        .map(|mode| format!("the file {name} is open to other users (mode {mode:o}): `chmod 600` it"));
    let mut content = String::new();
    // The limit allows a line end of up to two bytes, plus one byte to detect content that is too long.
    let most = u64::try_from(MAX_CREDENTIAL_BYTES).unwrap_or(u64::MAX).saturating_add(3);
    match opened.take(most).read_to_string(&mut content) {
        // Content that isn't UTF-8 is treated as empty, which is invalid.
        Err(error) if error.kind() == ErrorKind::InvalidData => content.clear(),
        read => drop(read.map_err(failed)?),
    }
    let line = content.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let secret = credential(line.unwrap_or(&content));
    secret.map(|secret| (secret, warning)).map_err(|rule| format!("the file {name} must contain {rule}"))
}

/// Checks a credential for another server.
///
/// # Errors
/// [`CREDENTIAL_RULE`].
pub fn credential(text: &str) -> Result<Secret, &'static str> {
    let fits = (1..=MAX_CREDENTIAL_BYTES).contains(&text.len());
    // The credential is sent in a header, like a service token.
    if !fits || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(CREDENTIAL_RULE);
    }
    Ok(Secret::new(text))
}

/// Decodes 32 bytes from base64, standard or URL-safe, with or without padding.
pub fn key_from_base64(text: &[u8]) -> Option<[u8; SECRET_BYTES]> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabets = [&alphabet::STANDARD, &alphabet::URL_SAFE];
    let decode = |alphabet| GeneralPurpose::new(alphabet, config).decode(text.trim_ascii()).ok();
    alphabets.into_iter().find_map(decode)?.try_into().ok()
}

/// Returns the content of `file`, which is created with the content `new` if it doesn't exist.
fn read_or_create(file: &Path, what: &str, new: &[u8], random: &Random) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{what} file {}: {error}", file.display());
    match read(file, what) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => return other.map_err(failed),
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    if create(file, new, random).map_err(failed)? {
        tracing::info!(file = %file.display(), "created a new {what}");
    }
    // If another process has created the file first, its secret is used.
    read(file, what).map_err(failed)
}

fn read(file: &Path, what: &str) -> std::io::Result<Vec<u8>> {
    let opened = File::open(file)?;
    if let Some(mode) = open_mode(&opened)? {
        tracing::warn!(
            file = %file.display(),
            "the {what} file is open to other users (mode {mode:o}): `chmod 600` it"
        );
    }
    let mut content = Vec::new();
    opened.take(MAX_FILE_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the mode of a file if other users can access it.
fn open_mode(file: &File) -> std::io::Result<Option<u32>> {
    let mode = file.metadata()?.permissions().mode() & 0o777;
    Ok((mode & 0o077 != 0).then_some(mode))
}

/// Creates `file` with `content`. Returns `false` if it already exists.
fn create(file: &Path, content: &[u8], random: &Random) -> std::io::Result<bool> {
    let temporary = temporary_name(file, random);
    let created = write_new(&temporary, content).and_then(|()| publish(&temporary, file));
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => created,
    }
}

fn temporary_name(file: &Path, random: &Random) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{:016x}.tmp", u64::from_be_bytes(random.bytes())));
    PathBuf::from(name)
}

fn write_new(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    opened.write_all(content)
}

#[cfg(test)]
#[allow(clippy::string_slice, reason = "test keys are ASCII")]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    /// A folder that is removed at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("tollkeeper-files-{:032x}", u128::from_be_bytes(Random::system().bytes()));
            Self(std::env::temp_dir().join(name))
        }
        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
        fn with(&self, name: &str, content: &[u8]) -> PathBuf {
            std::fs::create_dir_all(&self.0).unwrap();
            std::fs::write(self.file(name), content).unwrap();
            self.file(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn master(file: &Path) -> Result<[u8; 32], String> {
        load_or_create_master_key(None, file, &Random::system())
    }

    #[test]
    fn create_keeps_an_existing_file() {
        let folder = Folder::new();
        let file = folder.with("secret", b"first");
        assert!(!create(&file, b"second", &Random::system()).unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn error_names_the_file_below_an_unusable_folder() {
        let folder = Folder::new();
        let file = folder.with("secret", b"x");
        let nowhere = folder.file("link");
        std::os::unix::fs::symlink(folder.file("nowhere"), &nowhere).unwrap();
        // Neither path is a folder, and no folder can be created there.
        for place in [file, nowhere] {
            let below = place.join("below/a/file");
            let error = read_or_create(&below, "service token", b"new", &Random::system()).unwrap_err();
            assert!(error.starts_with(&format!("service token file {}: ", below.display())), "{error}");
        }
    }

    #[test]
    fn new_key_is_private_and_kept() {
        let folder = Folder::new();
        let file = folder.file("deep/er/master.key");
        let key = master(&file).unwrap();
        assert_eq!(master(&file).unwrap(), key);
        assert_eq!(std::fs::read(&file).unwrap(), key);
        assert_eq!((mode(&file), mode(file.parent().unwrap()), mode(&folder.0)), (0o600, 0o700, 0o700));
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn concurrent_starts_agree_on_one_key() {
        let folder = Folder::new();
        let file = folder.file("master.key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..16).map(|_| scope.spawn(|| master(&file))).collect();
            starts.into_iter().map(|start| start.join().unwrap().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn raw_bytes_and_base64_are_read() {
        let folder = Folder::new();
        let key = [0xfb; 32];
        let text = STANDARD.encode(key);
        let unpadded = text.trim_end_matches('=').to_owned();
        for content in [
            key.to_vec(),
            text.clone().into_bytes(),
            format!("{text}\n").into(),
            format!("{unpadded}\r\n").into(),
        ] {
            assert_eq!(master(&folder.with("k", &content)), Ok(key));
        }
        let from_environment = |text: &str| {
            load_or_create_master_key(Some(&Secret::new(text)), Path::new("/none"), &Random::system())
        };
        assert_eq!(from_environment(&text), Ok(key));
        for bad in ["", "abc", &text[1..], &format!("{text}{text}"), &"0".repeat(64)] {
            let error = from_environment(bad).unwrap_err();
            assert!(error.contains("TOLLKEEPER_MASTER_KEY") && error.contains("32 bytes"), "{error}");
            assert!(bad.len() < 10 || !error.contains(bad), "{error}");
        }
    }

    #[test]
    fn key_of_wrong_length_is_refused() {
        let folder = Folder::new();
        for length in [0, 1, 31, 33, 64, 100_000] {
            let file = folder.with("master.key", &vec![7; length]);
            let error = master(&file).unwrap_err();
            assert!(error.contains("master.key") && error.contains("32 random bytes"), "{error}");
            assert_eq!(std::fs::metadata(&file).unwrap().len(), u64::try_from(length).unwrap());
        }
        assert!(master(&folder.0).unwrap_err().contains("master key file"));
    }

    #[test]
    fn credential_is_one_line_and_never_quoted() {
        let folder = Folder::new();
        let long = "s".repeat(8_192);
        for good in ["k", "sk-word/+=", &long] {
            for end in ["", "\n", "\r\n"] {
                let file = folder.with("good", format!("{good}{end}").as_bytes());
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
                assert_eq!(read_credential(&file), Ok((Secret::new(good), None)), "{good:.20}{end:?}");
            }
        }
        let bad = [
            "",
            "\n",
            "word\n\n",
            "two words",
            "wo\trd",
            "wörd",
            "\r\n",
            &format!("{long}s"),
            &long.repeat(9),
        ];
        for content in bad.iter().map(|text| text.as_bytes()).chain([&b"word\xff"[..]]) {
            let file = folder.with("bad", content);
            let error = read_credential(&file).unwrap_err();
            assert_eq!(error, format!("the file {} must contain {CREDENTIAL_RULE}", file.display()));
        }
        let file = folder.with("open", b"word");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let warning = read_credential(&file).unwrap().1.unwrap();
        assert!(warning.ends_with("open is open to other users (mode 640): `chmod 600` it"), "{warning}");
        for missing in [folder.file("missing"), folder.0.clone()] {
            let error = read_credential(&missing).unwrap_err();
            assert!(error.starts_with(&format!("the file {} can't be read: ", missing.display())), "{error}");
        }
    }

    #[test]
    fn service_token_is_created_read_and_checked() {
        let folder = Folder::new();
        let file = folder.file("service.token");
        let random = Random::system();
        let made = load_or_create_service_token(None, &file, &random).unwrap();
        assert!(made.expose().starts_with("svc_") && made.expose().len() == 4 + 43);
        assert_eq!(load_or_create_service_token(None, &file, &random), Ok(made.clone()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", made.expose()));
        assert_eq!(mode(&file), 0o600);
        let configured = Secret::new("chosen-by-hand-0123456789");
        assert_eq!(load_or_create_service_token(Some(&configured), &file, &random), Ok(configured));
        let long = "s".repeat(513);
        let bad_ones = [
            "",
            "nineteen-characters",
            "two words in one token",
            "a-token-in-a-file-x\n",
            "a-token-in-a-file-xy\n",
            "é-and-twenty-more-signs",
            &long,
        ];
        for bad in bad_ones {
            assert!(
                load_or_create_service_token(Some(&Secret::new(bad)), &file, &random).is_err(),
                "{bad:?}"
            );
            let file = folder.with("bad", bad.as_bytes());
            let read = load_or_create_service_token(None, &file, &random);
            assert_eq!(read.is_ok(), bad == "a-token-in-a-file-xy\n", "{bad:?}");
        }
    }
}
