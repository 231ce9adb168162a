//! Password rules (docs/contract/accounts.md#password-rules). Every broken rule is reported, so that the user
//! can fix all of them at once.

use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use zxcvbn::zxcvbn;

use kernel::naming::Problem;

const MIN_CHARS: usize = 8;
const MAX_CHARS: usize = 128;
/// The minimum length of a personal word. Shorter words are ignored, because they occur in too many
/// passwords.
const MIN_PERSONAL_WORD_CHARS: usize = 4;
/// The number of digits at the end of a phone number that count as a personal word.
const PHONE_END_DIGITS: usize = 7;
/// A password that takes fewer guesses than this is common, assuming an attacker who knows the user.
const COMMON_GUESSES: u64 = 1_000_000;
/// The maximum number of characters passed to zxcvbn at once, because its running time grows faster than
/// linearly.
const MAX_ESTIMATED_CHARS: usize = 40;

/// The 10,000 most common passwords. The beginning of the file contains the source.
const COMMON_PASSWORDS: &str = include_str!("common_passwords.txt");

/// Words of the service's name, which are as easy to guess as personal words.
const SERVICE_WORDS: [&str; 3] = ["tollkeeper", "toll", "keeper"];

/// The maximum number of different signs in a password that are also tried as letters.
const MAX_SIGNS: usize = 3;

/// Personal data of the user, from the same request or from the account.
#[derive(Clone, Copy, Default, Debug)]
pub struct PersonalData<'a> {
    /// The username, as entered.
    pub username: &'a str,
    /// The e-mail address, as entered.
    pub email: &'a str,
    /// The full name, if any.
    pub full_name: Option<&'a str>,
    /// The phone number, if any: `+` and digits.
    pub phone: Option<&'a str>,
}

/// Returns the rules that this password breaks, in the order of the contract; empty if it breaks none.
///
/// Characters are counted after NFC normalization, because the password is hashed in this form. If a password
/// is too long, only this rule is reported, so that the running time is bounded.
pub fn check(password: &str, personal: &PersonalData<'_>) -> Vec<Problem> {
    let normal: String = password.nfc().take(MAX_CHARS + 1).collect();
    let length = normal.chars().count();
    if length > MAX_CHARS {
        let message = format!("must be at most {MAX_CHARS} characters");
        return vec![Problem::new("password_too_long", message)];
    }
    let lower = lowercase(&normal);
    let words = personal_words(personal);
    let rules = [
        (length < MIN_CHARS, "password_too_short", "must be at least 8 characters"),
        (!normal.chars().any(char::is_uppercase), "password_needs_uppercase", "needs an upper-case letter"),
        (!normal.chars().any(char::is_lowercase), "password_needs_lowercase", "needs a lower-case letter"),
        (!normal.chars().any(is_digit), "password_needs_digit", "needs a digit"),
        (
            is_listed(&lower) || is_common(&normal, personal, &words),
            "password_common",
            "is too easy to guess: add unexpected words or characters",
        ),
        (
            words.iter().any(|word| is_built_on(&lower, word)),
            "password_personal",
            "must have 8 characters in addition to your username, e-mail address, name and phone number",
        ),
    ];
    rules
        .into_iter()
        .filter(|(broken, ..)| *broken)
        .map(|(_, code, message)| Problem::new(code, message))
        .collect()
}

/// Returns `true` if two strings are the same password after NFC normalization.
pub fn is_same(one: &str, other: &str) -> bool {
    one.nfc().eq(other.nfc())
}

/// Returns `true` for a digit of any script, but not for a letter that represents a number, such as Ⅷ.
fn is_digit(c: char) -> bool {
    c.is_numeric() && !c.is_alphabetic()
}

/// Returns the personal words in lower case: the username, the local part of the e-mail address, the words of
/// the full name, and the phone number with and without its country code. Words of fewer than
/// [`MIN_PERSONAL_WORD_CHARS`] characters are left out.
fn personal_words(personal: &PersonalData<'_>) -> Vec<String> {
    let local_part = personal.email.rsplit_once('@').map_or(personal.email, |(local_part, _)| local_part);
    let inside_word = |c: char| c.is_alphanumeric() || is_combining_mark(c);
    let full_name = personal.full_name.unwrap_or_default();
    let by_space = full_name.split_whitespace();
    let by_sign = full_name.split(|c| !inside_word(c));
    let phone = personal.phone.unwrap_or_default().trim_start_matches('+');
    // Country codes have different lengths, so the end of the number is used instead of the number without
    // its code.
    let end_of_phone = phone.get(phone.len().saturating_sub(PHONE_END_DIGITS)..).unwrap_or_default();
    let names = [personal.username, local_part, phone, end_of_phone].into_iter();
    let candidates = names.chain(by_space).chain(by_sign);
    let mut words: Vec<String> =
        candidates.map(lowercase).filter(|word| word.chars().count() >= MIN_PERSONAL_WORD_CHARS).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Returns `true` if the password contains the word, and is too short without it.
fn is_built_on(password: &str, word: &str) -> bool {
    password.contains(word) && password.replace(word, "").chars().count() < MIN_CHARS
}

/// Returns `true` if this password, in lower case, is one of the most common passwords, with or without its
/// signs.
fn is_listed(password: &str) -> bool {
    static SORTED: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let (_, list) = COMMON_PASSWORDS.split_once("\n\n").unwrap_or_default();
        list.lines().collect()
    });
    let without_signs: String = password.chars().filter(|c| c.is_alphanumeric()).collect();
    [password, &without_signs].iter().any(|text| SORTED.binary_search(text).is_ok())
}

fn is_common(password: &str, personal: &PersonalData<'_>, words: &[String]) -> bool {
    let password = &with_few_signs(password);
    let start = |text: &str| text.chars().take(MAX_ESTIMATED_CHARS).collect::<String>();
    // A name usually has few words. The limit bounds the running time for a request with many words.
    let own: Vec<String> = [personal.username, personal.email, personal.full_name.unwrap_or_default()]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .filter(|text| !text.is_empty())
        .take(12)
        .chain(SERVICE_WORDS)
        .map(start)
        .collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let common = |part: &str| zxcvbn(part, &own).guesses() < COMMON_GUESSES;
    // The beginning and the end of a long password are estimated separately. It is common only if both are:
    // `aaaa…` followed by a strong password isn't.
    let end: String =
        password.chars().skip(password.chars().count().saturating_sub(MAX_ESTIMATED_CHARS)).collect();
    common(&start(password)) && common(&end)
}

/// Replaces signs that look like letters if the password contains many different ones. zxcvbn tries every
/// combination of the letters that they could represent, so its running time grows exponentially. Common
/// words are rarely written with more than a few such signs.
fn with_few_signs(password: &str) -> String {
    const SIGNS: &str = "@({[<!|$+%";
    let used = SIGNS.chars().filter(|sign| password.contains(*sign)).count();
    if used <= MAX_SIGNS {
        return password.to_owned();
    }
    password.chars().map(|c| if SIGNS.contains(c) { '¤' } else { c }).collect()
}

fn lowercase(text: &str) -> String {
    text.nfc().flat_map(char::to_lowercase).nfc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: PersonalData<'_> = PersonalData {
        username: "countess",
        email: "ada.love@example.org",
        full_name: Some("Augusta Ada King-Noel"),
        phone: Some("+4917012345678"),
    };

    fn codes(password: &str) -> Vec<&'static str> {
        check(password, &ADA).into_iter().map(|problem| problem.code).collect()
    }

    #[test]
    fn every_broken_rule_is_reported() {
        let cases: [(&str, &[&str]); 22] = [
            ("Violet-kettle-37", &[]),
            ("xK4mq9Tz", &[]),
            ("Żółw jedzie 9 dni", &[]),
            ("Пароль-из-7-слов", &[]),
            ("Größe ٣ wie hoch", &[]),
            ("xK4mq9T", &["password_too_short"]),
            ("violet-kettle-37", &["password_needs_uppercase"]),
            ("VIOLET-KETTLE-37", &["password_needs_lowercase"]),
            ("Violet-kettle-xx", &["password_needs_digit"]),
            ("Violet-kettle-Ⅷ", &["password_needs_digit"]),
            ("violet kettle", &["password_needs_uppercase", "password_needs_digit"]),
            (
                "正しい馬電池ホチキス",
                &["password_needs_uppercase", "password_needs_lowercase", "password_needs_digit"],
            ),
            ("Password1", &["password_common"]),
            ("P@ssw0rd", &["password_common"]),
            ("Qwerty123", &["password_common"]),
            ("Iloveyou1", &["password_common"]),
            ("Welcome1", &["password_common"]),
            ("Countess1", &["password_common", "password_personal"]),
            ("12cOuNtEsSxKq9T", &["password_personal"]),
            ("12cOuNtEsSxKq9Tz", &[]),
            ("Ada.Love-zQ5v", &["password_personal"]),
            ("xAugusta7kq", &["password_personal"]),
        ];
        for (password, expected) in cases {
            assert_eq!(codes(password), expected, "{password}");
        }
        assert_eq!(
            codes(""),
            [
                "password_too_short",
                "password_needs_uppercase",
                "password_needs_lowercase",
                "password_needs_digit",
                "password_common"
            ]
        );
    }

    #[test]
    fn well_known_passwords_are_common() {
        let no_one =
            PersonalData { username: "vuxzqil", email: "vuxzqil@example.org", ..PersonalData::default() };
        let passwords = "Abc12345 Abcd1234 Abcd@1234 Admin123 Admin@123 Administrator1 Aa123456 Aa12345678 Asdf1234 \
             Changeme1 Changeme123 Charlie1 Company123 Default1 Dragon123 Football1 Freedom1 Hello123 \
             Hello1234 Iloveyou123 Letmein1 Letmein123 Master123 Michael1 Monday123 Monkey123 P@ssw0rd1 \
             P@ssword1 Passw0rd1 Password123 Password2024 Pa55word1 Princess1 Qwer1234 Qwerty12 Qwerty12345 \
             Secret123 Shadow123 Spring2025 Summer2024 Sunshine1 Superman1 Test1234 Tollkeeper1 \
             Tollkeeper2024 Trustno1 Welcome123 Welcome2024 Welcome@123 Winter2023 Zaq12wsx 1Qaz2wsx \
             Q1w2e3r4t5";
        let accepted: Vec<_> = passwords
            .split(' ')
            .filter(|password| {
                !check(password, &no_one).iter().any(|problem| problem.code == "password_common")
            })
            .collect();
        assert_eq!(accepted, [""; 0]);
    }

    #[test]
    fn most_common_passwords_are_listed_in_any_case() {
        let (_, list) = COMMON_PASSWORDS.split_once("\n\n").unwrap();
        let list: Vec<_> = list.lines().collect();
        assert_eq!(list.len(), 10_000);
        assert!(list.is_sorted_by(|a, b| a < b), "for the binary search");
        assert!(list.iter().all(|word| lowercase(word) == *word && !word.is_empty()));
        assert!(is_listed("123456") && is_listed("trustno1") && !is_listed("violet-kettle-37"));
        // The estimate alone accepts this password.
        let no_one = PersonalData { username: "", email: "", ..PersonalData::default() };
        assert!(!is_common("dOmAiNlOcK2005", &no_one, &[]));
        assert_eq!(check("dOmAiNlOcK2005", &no_one)[0].code, "password_common");
    }

    #[test]
    fn personal_data_is_common() {
        let personal = PersonalData {
            username: "vuxzqil42j",
            email: "wbkmpy77q@example.org",
            ..PersonalData::default()
        };
        let codes = |password| check(password, &personal).into_iter().map(|p| p.code).collect::<Vec<_>>();
        assert_eq!(codes("Vuxzqil42j"), ["password_common", "password_personal"]);
        assert_eq!(codes("Wbkmpy77q@example.org"), ["password_common"]);
        assert_eq!(codes("Vuxzqil42k"), [""; 0]);
    }

    #[test]
    fn tried_signs_are_limited() {
        assert!(codes("P@ssw0rd").contains(&"password_common"));
        // If each of these signs could be any similar letter, zxcvbn would try thousands of combinations.
        let endless = "4@8({[<6931!|1$5+7%2".repeat(6) + "Aa1";
        assert_eq!(codes(&endless), [""; 0]);
        assert!(!with_few_signs(&endless).contains(['@', '(', '|']));
        assert_eq!(with_few_signs("P@$$w(rd1!"), "P¤¤¤w¤rd1¤");
        assert_eq!(with_few_signs("P@$$w0rd1!"), "P@$$w0rd1!");
    }

    #[test]
    fn short_words_are_not_personal() {
        // `Ada` has three letters; `King` and `Noel` have four, alone and as one word.
        assert_eq!(codes("Ada zQ5vw"), [""; 0]);
        assert_eq!(codes("Noel zQ5vw"), ["password_personal"]);
        assert_eq!(codes("King-Noel zQ5vw"), ["password_personal"]);
        let no_one = PersonalData { username: "", email: "", ..PersonalData::default() };
        assert!(check("Violet-kettle-37", &no_one).is_empty());
    }

    #[test]
    fn personal_words_are_unique() {
        // `Augusta` is found twice: between spaces and between signs.
        let words =
            ["2345678", "4917012345678", "ada.love", "augusta", "countess", "king", "king-noel", "noel"];
        assert_eq!(personal_words(&ADA), words);
    }

    #[test]
    fn every_occurrence_of_a_personal_word_is_removed() {
        assert_eq!(codes("Countess7countessCOUNTESS"), ["password_personal"]);
        let message = &check("xAugusta7kq", &ADA)[0].message;
        assert!(message.contains("8 characters"), "{message}");
    }

    #[test]
    fn characters_are_counted_after_nfc() {
        // Seven letters, one of which is decomposed.
        assert_eq!(codes("xK4mqz\u{301}T"), ["password_too_short"]);
        let decomposed = "e\u{301}".repeat(120);
        assert_eq!(codes(&format!("{decomposed}K4mq9Tzx")), [""; 0]);
        let longest = "zQ5v".repeat(32);
        assert!(!codes(&longest).contains(&"password_too_long"));
        assert_eq!(codes(&format!("{longest}x")), ["password_too_long"]);
        assert_eq!(codes(&"x".repeat(1 << 20)), ["password_too_long"]);
    }

    #[test]
    fn phone_number_is_personal() {
        for password in ["Ab4917012345678", "Ab017012345678", "2345678Abcdefg", "Xy+4917012345678!"] {
            assert!(codes(password).contains(&"password_personal"), "{password}");
        }
        // Part of the number, and enough characters in addition.
        for password in ["Violet-45678-kettle", "Violet-kettle-2345678"] {
            assert_eq!(codes(password), [] as [&str; 0], "{password}");
        }
    }

    #[test]
    fn decomposed_letters_match_personal_words() {
        let personal =
            PersonalData { username: "zo\u{308}literin", email: "z@example.org", ..PersonalData::default() };
        let found = check("ZÖLITERIN7kq", &personal);
        assert!(found.iter().any(|p| p.code == "password_personal"), "{found:?}");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn check_never_panics(password: String, username: String, email: String, full_name: Option<String>) {
            let personal = PersonalData { username: &username, email: &email, full_name: full_name.as_deref(), phone: Some(&username) };
            let problems = check(&password, &personal);
            proptest::prop_assert!(problems.len() <= 6);
        }
    }
}
