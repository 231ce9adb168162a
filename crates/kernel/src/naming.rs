//! Rules for names and e-mail addresses, and for their equality (docs/contract/README.md#names,
//! docs/contract/accounts.md#usernames, docs/contract/accounts.md#e-mail-addresses).

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::texts::is_control;
use serde::{Serialize, Serializer};

use super::{addresses, usernames};

pub use super::texts::{Problem, fold};

/// A name in its displayed form and in the form for comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The name as entered by the user, trimmed.
    pub display: String,
    /// The case-insensitive form for the unique column, see [`fold`].
    pub folded: String,
}

impl Name {
    fn of(display: impl Into<String>) -> Self {
        let display = display.into();
        Self { folded: fold(&display), display }
    }
}

/// Serializes the displayed form.
impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.display)
    }
}

const MAX_NAME_CHARS: usize = 100;
const MAX_DESCRIPTION_CHARS: usize = 1_000;
const MIN_USERNAME_CHARS: usize = 3;
const MAX_USERNAME_CHARS: usize = 64;
const MAX_FULL_NAME_CHARS: usize = 200;
/// The 256 octets of RFC 5321, section 4.5.3.1.3, minus two angle brackets (RFC 3696, erratum 1690).
const MAX_EMAIL_BYTES: usize = 254;

/// Checks the name of an organization, a project or a key: 1 to 100 characters after trimming.
///
/// # Errors
/// `required`, `too_long` or `invalid_characters`.
pub fn name(text: &str) -> Result<Name, Problem> {
    let text = text.trim();
    if !text.chars().any(is_visible) {
        return Err(Problem::new("required", format!("must be 1 to {MAX_NAME_CHARS} characters")));
    }
    check_max_chars(text, MAX_NAME_CHARS)?;
    check_no_controls(text, &[])?;
    Ok(Name::of(text))
}

/// Checks a description: up to 1,000 characters, including line breaks and tabs, not trimmed.
///
/// # Errors
/// `too_long` or `invalid_characters`.
pub fn description(text: &str) -> Result<String, Problem> {
    check_max_chars(text, MAX_DESCRIPTION_CHARS)?;
    check_no_controls(text, &['\n', '\r', '\t'])?;
    Ok(text.to_owned())
}

/// Checks a username: 3 to 64 letters or digits of any script and `. _ -`.
///
/// Many scripts write vowels as combining marks, so these are allowed after a letter. Invisible letters and
/// marks aren't allowed, because two usernames could then look the same.
///
/// # Errors
/// `too_short`, `too_long`, `invalid_characters`, or an error of [`usernames::check`].
pub fn username(text: &str) -> Result<Name, Problem> {
    let name = Name::of(text);
    // NFKC can change the length of a string (ﬁ becomes fi, and ﷺ becomes four words). Both the displayed and
    // the folded form must fit.
    for form in [&name.display, &name.folded] {
        let starts_well = form.chars().next().is_none_or(|c| !is_combining_mark(c));
        if !starts_well || !form.chars().all(is_username_char) {
            return Err(Problem::new(
                "invalid_characters",
                "must have only letters, digits and `.`, `_`, `-`",
            ));
        }
        check_max_chars(form, MAX_USERNAME_CHARS)?;
        if form.chars().count() < MIN_USERNAME_CHARS {
            return Err(Problem::new(
                "too_short",
                format!("must be at least {MIN_USERNAME_CHARS} characters"),
            ));
        }
    }
    usernames::check(&name.folded)?;
    Ok(name)
}

/// Checks a user's full name: up to 200 characters after trimming; may be empty.
///
/// # Errors
/// `too_long` or `invalid_characters`.
pub fn full_name(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    check_max_chars(text, MAX_FULL_NAME_CHARS)?;
    check_no_controls(text, &[])?;
    Ok(text.to_owned())
}

/// Checks an e-mail address: at most 254 bytes, without a display name, comment or domain literal.
///
/// The address is stored in NFC (RFC 6532, section 3.1) and compared in the form of [`addresses::fold`].
/// Compatibility look-alikes, such as full-width letters, are refused, because they would fold to another
/// user's address. Addresses that no e-mail can reach are refused, too.
///
/// # Errors
/// `too_long` or `invalid_email`.
pub fn email(text: &str) -> Result<Name, Problem> {
    let invalid = || Problem::new("invalid_email", "must be one address, for instance ada@example.org");
    if text.len() > MAX_EMAIL_BYTES {
        return Err(Problem::new("too_long", format!("must be at most {MAX_EMAIL_BYTES} bytes")));
    }
    let address: String = text.nfc().collect();
    let harmless =
        |c: char| !c.is_control() && !c.is_whitespace() && !is_invisible(c) && !matches!(c, '<' | '>');
    if !address.chars().all(harmless) || !address.chars().eq(address.nfkc()) {
        return Err(invalid());
    }
    let options = email_address::Options::default().without_display_text().without_domain_literal();
    match email_address::EmailAddress::parse_with_options(&address, options) {
        Ok(_) if address.len() <= MAX_EMAIL_BYTES && addresses::can_get_mail(&address) => {
            Ok(Name { folded: addresses::fold(&address), display: address })
        }
        _ => Err(invalid()),
    }
}

fn check_max_chars(text: &str, max: usize) -> Result<(), Problem> {
    if text.chars().count() > max {
        return Err(Problem::new("too_long", format!("must be at most {max} characters")));
    }
    Ok(())
}

/// Refuses the characters of [`is_control`], except the allowed ones.
fn check_no_controls(text: &str, allowed: &[char]) -> Result<(), Problem> {
    if text.chars().any(|c| is_control(c) && !allowed.contains(&c)) {
        return Err(Problem::new("invalid_characters", "must not contain control characters"));
    }
    Ok(())
}

fn is_username_char(c: char) -> bool {
    let word = c.is_alphanumeric() || is_combining_mark(c);
    (word && !is_invisible(c)) || matches!(c, '.' | '_' | '-')
}

fn is_visible(c: char) -> bool {
    !c.is_control() && !c.is_whitespace() && !is_invisible(c)
}

/// Returns `true` for `Default_Ignorable_Code_Point` of the Unicode Character Database.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, Problem>) -> &'static str {
        result.map_or_else(|problem| problem.code, |_| "ok")
    }

    #[test]
    fn names_are_checked() {
        let long = "ж".repeat(100);
        for (text, expected) in [
            ("Research", "ok"),
            ("  Research  ", "ok"),
            ("日本語プロジェクト", "ok"),
            ("مشروع", "ok"),
            ("प्रोजेक्ट", "ok"),
            ("Team 👩‍💻", "ok"),
            ("a", "ok"),
            (long.as_str(), "ok"),
            ("", "required"),
            ("   ", "required"),
            ("\u{3000}\u{a0}", "required"),
            ("\u{200b}\u{feff}", "required"),
            ("\u{3164}", "required"),
            ("\0", "required"),
            ("a\0b", "invalid_characters"),
            ("a\nb", "invalid_characters"),
            ("a\u{7f}", "invalid_characters"),
            ("a\u{85}b", "invalid_characters"),
            ("a\u{2028}b", "invalid_characters"),
            ("invoice\u{202e}fdp.exe", "invalid_characters"),
            ("a\u{2066}b", "invalid_characters"),
        ] {
            assert_eq!(code(name(text)), expected, "{text:?}");
        }
        assert_eq!(code(name(&format!("{long}x"))), "too_long");
        let trimmed = name("\t Ａcme  Ĳ ").unwrap();
        assert_eq!((trimmed.display.as_str(), trimmed.folded.as_str()), ("Ａcme  Ĳ", "acme  ij"));
    }

    #[test]
    fn descriptions_are_checked() {
        for (text, expected) in [
            ("", "ok"),
            ("two\nlines\r\n\tand a tab", "ok"),
            ("nul\0", "invalid_characters"),
            ("bell\u{7}", "invalid_characters"),
            ("escape\u{1b}[31m", "invalid_characters"),
            ("\u{202e}turned", "invalid_characters"),
        ] {
            assert_eq!(code(description(text)), expected, "{text:?}");
        }
        assert_eq!(code(description(&"é".repeat(1_000))), "ok");
        assert_eq!(code(description(&"é".repeat(1_001))), "too_long");
        assert_eq!(description(" kept ").unwrap(), " kept ");
    }

    #[test]
    fn usernames_are_checked() {
        for (text, expected) in [
            ("ada", "ok"),
            ("Ada.Love_lace-1", "ok"),
            ("...", "ok"),
            ("Žofie", "ok"),
            ("Z\u{30c}ofie", "ok"),
            ("Ωμέγα", "ok"),
            ("иван", "ok"),
            ("王小明", "ok"),
            ("محمد", "ok"),
            ("अजय", "ok"),
            ("प्रिया", "ok"),
            ("สมชาย", "ok"),
            ("தமிழ்", "ok"),
            ("홍길동", "ok"),
            ("שרה", "ok"),
            ("١٢٣", "ok"),
            ("", "too_short"),
            ("ab", "too_short"),
            ("王明", "too_short"),
            ("a b", "invalid_characters"),
            (" ada", "invalid_characters"),
            ("ada ", "invalid_characters"),
            ("ada@example.org", "invalid_characters"),
            ("ada/..", "invalid_characters"),
            ("ada\0", "invalid_characters"),
            ("ada\n", "invalid_characters"),
            ("<b>ada", "invalid_characters"),
            ("ada\u{202e}", "invalid_characters"),
            ("ada\u{200b}", "invalid_characters"),
            ("ada\u{200d}", "invalid_characters"),
            ("ada\u{fe0f}", "invalid_characters"),
            ("ada\u{34f}", "invalid_characters"),
            ("ada\u{3164}", "invalid_characters"),
            ("\u{301}ada", "invalid_characters"),
            ("ada👍", "invalid_characters"),
            ("ada😀x", "invalid_characters"),
            ("ﷺﷺﷺ", "invalid_characters"),
            ("ada；", "invalid_characters"),
        ] {
            assert_eq!(code(username(text)), expected, "{text:?}");
        }
        assert_eq!(code(username(&"a".repeat(64))), "ok");
        assert_eq!(code(username(&"a".repeat(65))), "too_long");
        assert_eq!(code(username(&"ﬃ".repeat(64))), "too_long");
        assert_eq!(code(username(&"x".repeat(1 << 20))), "too_long");
    }

    #[test]
    fn equivalent_usernames_fold_alike() {
        for (a, b) in [
            ("ADA", "ada"),
            ("Žofie", "z\u{30c}OFIE"),
            ("ＡＤＡ", "ada"),
            ("ﬁona", "FIona"),
            ("\u{212a}elvin", "kelvin"),
            ("ΟΔΟΣ", "οδος"),
            ("ΟΔΟΣ", "οδοσ"),
            ("straẞe", "straße"),
        ] {
            assert_eq!(username(a).unwrap().folded, username(b).unwrap().folded, "{a} {b}");
        }
        assert_ne!(fold("ada"), fold("аdа"), "a Cyrillic а is another letter");
    }

    #[test]
    fn full_names_are_checked() {
        for (text, expected) in [
            ("", "ok"),
            ("  Ada Lovelace ", "ok"),
            ("Bùi Thị Xuân", "ok"),
            ("O'Brien-Smith, Jr.", "ok"),
            ("<script>", "ok"),
            ("a\r\nBcc: x", "invalid_characters"),
            ("a\0", "invalid_characters"),
            ("a\u{202e}b", "invalid_characters"),
        ] {
            assert_eq!(code(full_name(text)), expected, "{text:?}");
        }
        assert_eq!(full_name(" Ada  L ").unwrap(), "Ada  L");
        assert_eq!(code(full_name(&"字".repeat(201))), "too_long");
    }

    #[test]
    fn email_length_counts_the_composed_form() {
        // In NFC, each of these letters becomes two characters of two bytes each, instead of one character of
        // three bytes.
        let pointed = |domain: &str| format!("{}@{domain}.org", "\u{fb1d}".repeat(16));
        let domain = [&*"d".repeat(60); 3].join(".");
        assert_eq!((pointed(&domain).len(), code(email(&pointed(&domain)))), (235, "ok"));
        let domain = format!("{domain}.{}", "d".repeat(16));
        assert_eq!((pointed(&domain).len(), code(email(&pointed(&domain)))), (252, "invalid_email"));
    }

    #[test]
    fn emails_are_checked() {
        for (text, expected) in [
            ("ada@example.org", "ok"),
            ("Ada.Lovelace+tag@Mail.Example.ORG", "ok"),
            ("o'brien@example.org", "ok"),
            ("root@localhost", "ok"),
            ("\"quoted\"@example.org", "ok"),
            ("用户@例子.广告", "ok"),
            ("Dörte@Sörensen.example.com", "ok"),
            ("", "invalid_email"),
            ("ada", "invalid_email"),
            ("ada@", "invalid_email"),
            ("@example.org", "invalid_email"),
            ("ada@@example.org", "invalid_email"),
            ("ada@b@example.org", "invalid_email"),
            (".ada@example.org", "invalid_email"),
            ("ada.@example.org", "invalid_email"),
            ("a..da@example.org", "invalid_email"),
            ("ada@example..org", "invalid_email"),
            ("ada@-example.org", "invalid_email"),
            ("ada@example.org.", "invalid_email"),
            ("ada@[127.0.0.1]", "invalid_email"),
            ("ada@[IPv6:::1]", "invalid_email"),
            ("Ada <ada@example.org>", "invalid_email"),
            ("<ada@example.org>", "invalid_email"),
            (" <ada@example.org>", "invalid_email"),
            (" ada@example.org", "invalid_email"),
            ("ada@example.org ", "invalid_email"),
            ("a da@example.org", "invalid_email"),
            ("\"a da\"@example.org", "invalid_email"),
            ("ada@example.org\n", "invalid_email"),
            ("ada@example.org\r\nBcc: eve@example.org", "invalid_email"),
            ("ada\0@example.org", "invalid_email"),
            ("ada@exam\0ple.org", "invalid_email"),
            ("ada\u{200b}@example.org", "invalid_email"),
            ("ada\u{202e}@example.org", "invalid_email"),
            ("ada@example.org,eve@example.org", "invalid_email"),
            ("ada@example.org;eve@example.org", "invalid_email"),
            ("ａda@example.org", "invalid_email"),
            ("ada＠example.org", "invalid_email"),
            ("ﬁona@example.org", "invalid_email"),
            ("👍@example.org", "invalid_email"),
        ] {
            assert_eq!(code(email(text)), expected, "{text:?}");
        }
        let domain = format!("{0}.{0}.{1}.example.org", "b".repeat(59), "b".repeat(57));
        let longest = format!("{}@{domain}", "a".repeat(64));
        assert_eq!((longest.len(), code(email(&longest))), (254, "ok"));
        assert_eq!(code(email(&longest.replace("@b", "@bb"))), "too_long");
        assert_eq!(code(email(&format!("{}@example.org", "a".repeat(300)))), "too_long");
        let address = email("Dörte@Example.ORG").unwrap();
        assert_eq!(
            (address.display.as_str(), address.folded.as_str()),
            ("Dörte@Example.ORG", "dörte@example.org")
        );
        assert_eq!(email("do\u{308}rte@example.org"), email("dörte@example.org"));
        assert_eq!(email("\u{212a}ai@example.org").unwrap().display, "Kai@example.org");
    }

    #[test]
    fn fold_is_idempotent() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let once = fold(&c.to_string());
            assert_eq!(fold(&once), once, "{c:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn accepted_texts_are_stable(text: String) {
            for rule in [name, username, email] {
                if let Ok(accepted) = rule(&text) {
                    proptest::prop_assert_eq!(rule(&accepted.display), Ok(accepted));
                }
            }
            proptest::prop_assert_eq!(fold(&fold(&text)), fold(&text));
            for rule in [description, full_name] {
                if let Ok(accepted) = rule(&text) {
                    proptest::prop_assert_eq!(rule(&accepted), Ok(accepted));
                }
            }
        }
    }
}
