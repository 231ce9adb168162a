//! Codes of the second factor: one-time codes of an authenticator app (TOTP, RFC 6238), and recovery codes
//! (docs/contract/accounts.md#second-factor).

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use totp_rs::{Builder, Secret};

use kernel::clock::Time;
use kernel::random::Random;
use kernel::secrets::{HIDDEN, sha256};

/// The bytes of a seed: as many as SHA-1 returns (RFC 4226, section 4).
pub const SEED_BYTES: usize = 20;
/// The number of recovery codes that a person gets at a time.
pub const RECOVERY_CODES: usize = 10;
/// The random bytes of a recovery code: 24 characters of base32.
const RECOVERY_CODE_BYTES: usize = 15;
/// The characters of a recovery code.
const RECOVERY_CODE_CHARS: usize = 24;
/// The characters in each of its groups.
const GROUP_CHARS: usize = 6;
/// The digits of a code of an app.
const DIGITS: usize = 6;

/// The secret that an authenticator app and the server share.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; SEED_BYTES]);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Seed {
    /// A new seed with 160 random bits.
    pub fn generate(random: &Random) -> Self {
        Self(random.bytes())
    }

    /// Returns a seed of these bytes; `None` if it isn't their number.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns its bytes, which are stored sealed only.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns its text, which is typed into an app: 32 characters of base32.
    pub fn expose_text(&self) -> String {
        Secret::new_stack(self.0).to_base32()
    }

    /// Returns the time step of this code: the current one, the one before or the one after.
    pub fn step_of(&self, code: &str, now: Time) -> Option<i64> {
        // The builder's defaults are those that every app supports: SHA-1, 6 digits, 30 seconds, one step of
        // tolerance.
        let totp = Builder::new().with_secret(Secret::new_stack(self.0)).build().ok()?;
        let step = totp.check(code, u64::try_from(now.unix_seconds()).ok()?)?;
        i64::try_from(step).ok()
    }

    /// Returns the link in the QR code for the account `email` at `issuer`.
    pub fn expose_url(&self, issuer: &str, email: &str) -> String {
        // A colon would end the issuer.
        let issuer = utf8_percent_encode(&issuer.replace(':', " "), NON_ALPHANUMERIC).to_string();
        let email = utf8_percent_encode(email, NON_ALPHANUMERIC);
        let secret = self.expose_text();
        format!(
            "otpauth://totp/{issuer}:{email}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits=6&period=30"
        )
    }
}

/// Returns the issuer's name in an app: the host of the public URL.
pub fn issuer(public_url: &str) -> &str {
    let rest = public_url.split_once("://").map_or(public_url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// A recovery code.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryCode(String);

impl fmt::Debug for RecoveryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl RecoveryCode {
    /// A new code with 120 random bits.
    pub fn generate(random: &Random) -> Self {
        let bytes: [u8; RECOVERY_CODE_BYTES] = random.bytes();
        Self(Secret::new(bytes.into()).to_base32())
    }

    /// Reads a code as people type it: in upper or lower case, with or without signs between the groups, and
    /// with digits that look like the letters that are meant.
    pub fn parse(text: &str) -> Option<Self> {
        let letters: String = text.chars().filter(|c| !is_between(*c)).map(letter).collect();
        let is_base32 = letters.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7'));
        (is_base32 && letters.len() == RECOVERY_CODE_CHARS).then_some(Self(letters))
    }

    /// Returns its text in groups, which is shown once.
    pub fn expose(&self) -> String {
        let letters: Vec<char> = self.0.chars().collect();
        let groups: Vec<String> = letters.chunks(GROUP_CHARS).map(|group| group.iter().collect()).collect();
        groups.join("-")
    }

    /// Returns the SHA-256 of its characters, as stored in the database.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }
}

fn is_between(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '_' | '.' | '\u{2010}'..='\u{2015}')
}

/// Returns the letter that is meant by a character of a recovery code.
fn letter(c: char) -> char {
    match c.to_ascii_uppercase() {
        '0' => 'O',
        '1' => 'I',
        '8' => 'B',
        letter => letter,
    }
}

/// A code as a person types it.
#[derive(Clone, PartialEq, Eq)]
pub enum OneTimeCode {
    /// Of an app: six digits.
    Totp(String),
    Recovery(RecoveryCode),
}

impl OneTimeCode {
    /// Reads a code of either kind; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| !is_between(*c)).collect();
        if digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit()) {
            return Some(Self::Totp(digits));
        }
        RecoveryCode::parse(text).map(Self::Recovery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed of RFC 6238, appendix B, for SHA-1.
    fn rfc_seed() -> Seed {
        Seed::from_bytes(b"12345678901234567890").unwrap()
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        // RFC 6238, appendix B, has eight digits; six are their end.
        for (seconds, code) in [
            (59, "94-287082"),
            (1_111_111_109, "07-081804"),
            (1_111_111_111, "14-050471"),
            (1_234_567_890, "89-005924"),
            (2_000_000_000, "69-279037"),
            (20_000_000_000, "65-353130"),
        ] {
            let (start, code) = code.split_once('-').unwrap();
            let now = Time::from_unix_ms(seconds * 1000);
            assert_eq!(rfc_seed().step_of(code, now), Some(seconds / 30), "{seconds}");
            assert_eq!(rfc_seed().step_of(&format!("{start}{code}"), now), None, "eight digits");
        }
    }

    #[test]
    fn code_is_good_one_step_early_and_late() {
        let step = 1_111_111_109 / 30;
        let at = |step: i64, ms: i64| Time::from_unix_ms(step * 30_000 + ms);
        for (now, is_good) in [
            (at(step - 2, 29_999), false),
            (at(step - 1, 0), true),
            (at(step, 0), true),
            (at(step + 1, 29_999), true),
            (at(step + 2, 0), false),
            (Time::from_unix_ms(-1_000), false),
        ] {
            assert_eq!(rfc_seed().step_of("081804", now), is_good.then_some(step), "{now}");
        }
    }

    #[test]
    fn only_six_digits_are_a_code() {
        let now = Time::from_unix_ms(59_000);
        for text in ["", "28708", "2870820", "+28708", "28708a", "２８７０８２", "287 08", "-87082"] {
            assert_eq!(rfc_seed().step_of(text, now), None, "{text}");
        }
    }

    #[test]
    fn url_is_what_apps_read() {
        let url = rfc_seed().expose_url(issuer("https://keeper.example.com:8443/path"), "ada+1@example.com");
        let expected = "otpauth://totp/keeper%2Eexample%2Ecom:ada%2B1%40example%2Ecom?secret=\
                        GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=keeper%2Eexample%2Ecom&algorithm=SHA1&digits=6&period=30";
        assert_eq!(url, expected);
        assert_eq!(issuer("http://127.0.0.1:8080"), "127.0.0.1");
        assert_eq!(issuer("http://[::1]:8080"), "[::1]");
        assert_eq!(issuer("http://[::1]"), "[::1]");
        assert_eq!(issuer("http://localhost"), "localhost");
        let url = rfc_seed().expose_url("a:b", "ö&c@example.com");
        assert!(url.starts_with("otpauth://totp/a%20b:%C3%B6%26c%40example%2Ecom?secret="), "{url}");
    }

    #[test]
    fn recovery_codes_read_back_however_they_are_typed() {
        let code = RecoveryCode::generate(&Random::system());
        let text = code.expose();
        let groups: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(groups, [GROUP_CHARS; 4], "{text}");
        for typed in [
            text.clone(),
            text.to_lowercase(),
            text.replace('-', ""),
            text.replace('-', " – "),
            format!(" {} ", text.replace('O', "0").replace('I', "1").replace('B', "8")),
        ] {
            assert_eq!(RecoveryCode::parse(&typed).map(|code| code.hash()), Some(code.hash()), "{typed}");
        }
        assert_ne!(RecoveryCode::generate(&Random::system()), code);
        // `printf ABCDEFGHIJKLMNOPQRSTUVWX | sha256sum`
        let code = RecoveryCode::parse("ABCDEF-GHIJKL-MNOPQR-STUVWX").unwrap();
        assert_eq!(code.hash()[..8], [0xbf, 0xa1, 0xd0, 0xdf, 0xce, 0xda, 0xe3, 0x14]);
        for bad in ["", "123456", "ABCDEF-ABCDEF-ABCDEF-ABCDE9", "ABCDEF-ABCDEF-ABCDEF-ABCDE"] {
            assert!(RecoveryCode::parse(bad).is_none(), "{bad}");
        }
        assert!(RecoveryCode::parse(&"Ä".repeat(24)).is_none());
    }

    #[test]
    fn digits_are_a_code_of_an_app_and_letters_a_recovery_code() {
        assert!(matches!(OneTimeCode::parse("123 456"), Some(OneTimeCode::Totp(code)) if code == "123456"));
        assert!(matches!(OneTimeCode::parse("abcdef-abcdef-abcdef-abcdef"), Some(OneTimeCode::Recovery(_))));
        for bad in ["", "12345", "1234567", "１２３４５６", "abcdef"] {
            assert!(OneTimeCode::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn secrets_never_print() {
        assert_eq!(format!("{:?}", rfc_seed()), HIDDEN);
        assert_eq!(format!("{:?}", RecoveryCode::generate(&Random::system())), HIDDEN);
    }
}
