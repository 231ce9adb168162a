//! Usernames that are refused: names that suggest the service itself, and names with mixed scripts, which can
//! look like another username (docs/contract/accounts.md#usernames).

use unicode_script::{Script, ScriptExtension, UnicodeScript};

use super::texts::Problem;

/// Names that suggest the service, its operators or the system, sorted, and without `.`, `_` and `-`.
const RESERVED: &[&str] = &[
    "abuse",
    "account",
    "accounts",
    "admin",
    "administrator",
    "admins",
    "anonymous",
    "api",
    "billing",
    "daemon",
    "everyone",
    "help",
    "helpdesk",
    "hostmaster",
    "info",
    "mailerdaemon",
    "moderator",
    "nobody",
    "noreply",
    "null",
    "official",
    "operator",
    "operators",
    "payment",
    "payments",
    "postmaster",
    "root",
    "security",
    "self",
    "service",
    "staff",
    "superuser",
    "support",
    "sysadmin",
    "system",
    "tollkeeper",
    "undefined",
    "webmaster",
];

/// Checks the username of a new account, in its folded form.
///
/// # Errors
/// `reserved` or `mixed_scripts`.
pub fn check(folded: &str) -> Result<(), Problem> {
    let bare: String = folded.chars().filter(|c| !matches!(c, '.' | '_' | '-')).collect();
    if RESERVED.binary_search(&bare.as_str()).is_ok() {
        return Err(Problem::new("reserved", "is reserved for the service itself: choose another one"));
    }
    if !is_of_one_writing_system(folded) {
        return Err(Problem::new(
            "mixed_scripts",
            "must not mix letters of several scripts, such as Latin and Cyrillic",
        ));
    }
    Ok(())
}

/// Returns `true` if all letters belong to one script, or to scripts that are commonly mixed: Latin with the
/// scripts of Japanese, Chinese or Korean ("highly restrictive" in UTS 39, section 5.2).
fn is_of_one_writing_system(text: &str) -> bool {
    let (mut all, mut without_latin) = (Scripts::any(), Scripts::any());
    for c in text.chars() {
        let scripts = c.script_extension();
        all.intersect(scripts);
        if !scripts.contains_script(Script::Latin) {
            without_latin.intersect(scripts);
        }
    }
    !all.is_empty() || without_latin.written_with_han()
}

/// The scripts and the multi-script writing systems that a string may belong to (the augmented script set of
/// UTS 39, section 5.1).
struct Scripts {
    one: ScriptExtension,
    chinese: bool,
    japanese: bool,
    korean: bool,
}

impl Scripts {
    fn any() -> Self {
        Self { one: Script::Common.into(), chinese: true, japanese: true, korean: true }
    }

    fn intersect(&mut self, of_a_letter: ScriptExtension) {
        let any = of_a_letter.is_common() || of_a_letter.is_inherited();
        let has =
            |scripts: &[Script]| any || scripts.iter().any(|script| of_a_letter.contains_script(*script));
        self.chinese &= has(&[Script::Han, Script::Bopomofo]);
        self.japanese &= has(&[Script::Han, Script::Hiragana, Script::Katakana]);
        self.korean &= has(&[Script::Han, Script::Hangul]);
        self.one.intersect_with(of_a_letter);
    }

    const fn written_with_han(&self) -> bool {
        self.chinese || self.japanese || self.korean
    }

    fn is_empty(&self) -> bool {
        self.one.is_empty() && !self.written_with_han()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::fold;

    fn code(username: &str) -> &'static str {
        check(&fold(username)).map_or_else(|problem| problem.code, |()| "ok")
    }

    #[test]
    fn reserved_names_are_sorted_and_folded() {
        assert!(RESERVED.is_sorted());
        assert!(
            RESERVED.iter().all(|name| fold(name) == *name && name.bytes().all(|b| b.is_ascii_lowercase()))
        );
    }

    #[test]
    fn reserved_names_are_refused() {
        for username in
            ["admin", "ADMIN", "ＡＤＭＩＮ", "Ad.min", "no-reply", "mailer_daemon", "-root-", "Tollkeeper"]
        {
            assert_eq!(code(username), "reserved", "{username}");
        }
        for username in ["administratrix", "ada", "admin1", "rooty", "systema", "sup", "..."] {
            assert_eq!(code(username), "ok", "{username}");
        }
    }

    #[test]
    fn mixed_scripts_are_refused() {
        for (username, expected) in [
            ("ada_lovelace-1", "ok"),
            ("Žofie", "ok"),
            ("Z\u{30c}ofie", "ok"),
            ("иван.1", "ok"),
            ("Ωμέγα", "ok"),
            ("محمد", "ok"),
            ("प्रिया", "ok"),
            ("สมชาย", "ok"),
            ("தமிழ்", "ok"),
            ("١٢٣", "ok"),
            ("王小明", "ok"),
            ("山田タロウ", "ok"),
            ("やまだtaro", "ok"),
            ("홍길동kim", "ok"),
            ("ㄅㄆ王abc", "ok"),
            ("ⅷⅷⅷ", "ok"),
            ("аdа", "mixed_scripts"),
            ("pаypal", "mixed_scripts"),
            ("Ωmega", "mixed_scripts"),
            ("адаω", "mixed_scripts"),
            ("王иван", "mixed_scripts"),
            ("홍やま", "mixed_scripts"),
            ("adaשרה", "mixed_scripts"),
            ("ada\u{5b4}", "mixed_scripts"),
            ("ada١٢٣", "mixed_scripts"),
        ] {
            assert_eq!(code(username), expected, "{username}");
        }
    }
}
