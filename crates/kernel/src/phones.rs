//! Telephone numbers of any country, in their canonical form (ITU-T E.164).

use crate::texts::Problem;

/// The number of digits, including the country code. E.164 defines only a maximum; 7 is the minimum that any
/// country assigns.
const DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// Maximum length of a string that is parsed: 15 digits in any grouping.
const LONGEST_TEXT: usize = 40;

/// Parses a number with `+` and a country code in any common notation. Spaces, dashes, dots, slashes and
/// brackets are dropped, as is the `(0)` that is dialed only within the country. Returns `+` and digits.
///
/// Only the length is checked. Country codes and the number formats of each country change over time, and a
/// server that isn't updated would refuse valid new numbers.
///
/// # Errors
/// `invalid_phone`.
pub fn phone(text: &str) -> Result<String, Problem> {
    let problem = |message: &str| Err(Problem::new("invalid_phone", message));
    if text.chars().count() > LONGEST_TEXT {
        return problem("is too long for a telephone number");
    }
    let spaced = text.trim_matches(' ').replacen("(0)", " ", 1);
    let canonical: String = spaced.chars().filter(|c| !is_separator(*c)).collect();
    let Some(digits) = canonical.strip_prefix('+') else {
        return problem("must begin with `+` and the country code, for instance +14155550123");
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return problem(
            "must have only digits after the `+`, optionally grouped with spaces, dashes and brackets",
        );
    }
    if !DIGITS.contains(&digits.len()) {
        return problem("must have 7 to 15 digits, the country code included");
    }
    // No country code begins with 0, which is the prefix for calls to another country or region.
    if digits.starts_with('0') {
        return problem("must begin with a country code, for instance +1, +44 or +380");
    }
    Ok(canonical)
}

fn is_separator(c: char) -> bool {
    // This includes the spaces and dashes that typesetters and word processors insert.
    matches!(
        c,
        ' ' | '-' | '.' | '/' | '(' | ')' | '\u{a0}' | '\u{2009}' | '\u{202f}' | '\u{2010}'
            ..='\u{2015}' | '\u{2212}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of each country, in its local notation.
    const COUNTRIES: [(&str, &str, &str); 62] = [
        ("Argentina", "+54 9 11 2345-6789", "+5491123456789"),
        ("Australia", "+61 412 345 678", "+61412345678"),
        ("Austria", "+43 664 123456", "+43664123456"),
        ("Bangladesh", "+880 1812-345678", "+8801812345678"),
        ("Belgium", "+32 470 12 34 56", "+32470123456"),
        ("Brazil", "+55 (11) 96123-4567", "+5511961234567"),
        ("Bulgaria", "+359 43 012 345", "+35943012345"),
        ("Canada", "+1 (506) 234-5678", "+15062345678"),
        ("Chile", "+56 2 2123 4567", "+56221234567"),
        ("China", "+86 131 2345 6789", "+8613123456789"),
        ("Colombia", "+57 321 1234567", "+573211234567"),
        ("Costa Rica", "+506 8312 3456", "+50683123456"),
        ("Croatia", "+385 92 123 4567", "+385921234567"),
        ("Czechia", "+420 601 123 456", "+420601123456"),
        ("Denmark", "+45 32 12 34 56", "+4532123456"),
        ("Egypt", "+20 100 123 4567", "+201001234567"),
        ("Estonia", "+372 5123 4567", "+37251234567"),
        ("Ethiopia", "+251 91 123 4567", "+251911234567"),
        ("Finland", "+358 41 2345678", "+358412345678"),
        ("France", "+33 6 12 34 56 78", "+33612345678"),
        ("Germany", "+49 (0)30 / 901-820", "+4930901820"),
        ("Ghana", "+233 23 123 4567", "+233231234567"),
        ("Greece", "+30 691 234 5678", "+306912345678"),
        ("Hong Kong", "+852 5123 4567", "+85251234567"),
        ("Hungary", "+36 20 123 4567", "+36201234567"),
        ("Iceland", "+354 611 1234", "+3546111234"),
        ("India", "+91 81234 56789", "+918123456789"),
        ("Indonesia", "+62 812-345-678", "+62812345678"),
        ("Iran", "+98 912 345 6789", "+989123456789"),
        ("Ireland", "+353 85 012 3456", "+353850123456"),
        ("Israel", "+972 50-234-5678", "+972502345678"),
        ("Italy, with its leading 0", "+39 06 698 12345", "+390669812345"),
        ("Japan", "+81 90-1234-5678", "+819012345678"),
        ("Kazakhstan", "+7 771 000 9998", "+77710009998"),
        ("Kenya", "+254 712 123456", "+254712123456"),
        ("Kosovo", "+383 43 201 234", "+38343201234"),
        ("Malaysia", "+60 12-345 6789", "+60123456789"),
        ("Mexico", "+52 222 123 4567", "+522221234567"),
        ("Morocco", "+212 650-123456", "+212650123456"),
        ("Netherlands", "+31\u{a0}6\u{a0}12345678", "+31612345678"),
        ("New Zealand", "+64 21 123 4567", "+64211234567"),
        ("Nigeria", "+234 802 123 4567", "+2348021234567"),
        ("Niue, the shortest", "+683 4002", "+6834002"),
        ("Norway", "+47 406 12 345", "+4740612345"),
        ("Pakistan", "+92 301 2345678", "+923012345678"),
        ("Palestine", "+970 599 123 456", "+970599123456"),
        ("Peru", "+51 912 345 678", "+51912345678"),
        ("Philippines", "+63 905 123 4567", "+639051234567"),
        ("Poland", "+48 512 345 678", "+48512345678"),
        ("Portugal", "+351 912 345 678", "+351912345678"),
        ("Russia", "+7 (912) 345\u{2011}67\u{2011}89", "+79123456789"),
        ("Samoa", "+685 72 12345", "+6857212345"),
        ("South Africa", "+27 71 123 4567", "+27711234567"),
        ("South Korea", "+82 10-2000-0000", "+821020000000"),
        ("Spain", "+34 612.34.56.78", "+34612345678"),
        ("Sweden", "+46 70 123 45 67", "+46701234567"),
        ("Switzerland", "+41 78 123 45 67", "+41781234567"),
        ("Taiwan", "+886 912 345 678", "+886912345678"),
        ("Türkiye", "+90 501 234 56 78", "+905012345678"),
        ("Ukraine", "+380 50 123 4567", "+380501234567"),
        ("United Kingdom, for films", " +44 (0)1632 960961 ", "+441632960961"),
        ("United States", "+1 (201) 555\u{2013}0123", "+12015550123"),
    ];

    #[test]
    fn every_country_s_numbers_are_read() {
        for (country, written, canonical) in COUNTRIES {
            assert_eq!(phone(written).as_deref(), Ok(canonical), "{country}");
            assert_eq!(phone(canonical).as_deref(), Ok(canonical), "{country}");
        }
    }

    #[test]
    fn invalid_numbers_are_refused_with_a_reason() {
        for (text, why) in [
            ("", "begin with `+`"),
            ("14155550123", "begin with `+`"),
            ("0014155550123", "begin with `+`"),
            ("00 44 1632 960961", "begin with `+`"),
            ("(0)30 901820", "begin with `+`"),
            ("tel:+14155550123", "begin with `+`"),
            ("＋14155550123", "begin with `+`"),
            ("++14155550123", "only digits"),
            ("+1415555012x", "only digits"),
            ("+1 415 555 CALL", "only digits"),
            ("+1 415 555 0123 ext 5", "only digits"),
            ("+1415555\u{660}123", "only digits"),
            ("+1415555\u{ff11}123", "only digits"),
            ("+1415\u{0}555012", "only digits"),
            ("+14155550123\n", "only digits"),
            ("+1 415\t555 0123", "only digits"),
            ("+1 415 555 0123;", "only digits"),
            ("+", "7 to 15 digits"),
            ("+123456", "7 to 15 digits"),
            ("+1234567890123456", "7 to 15 digits"),
            ("+0123456789", "country code"),
            ("+0014155550123", "country code"),
            ("+(0)0014155550123", "country code"),
        ] {
            let problem = phone(text).expect_err(text);
            assert_eq!(problem.code, "invalid_phone", "{text:?}");
            assert!(problem.message.contains(why), "{text:?}: {}", problem.message);
        }
        assert!(phone(&"+1".repeat(1 << 19)).unwrap_err().message.contains("too long"));
        let spaced = format!("{:<LONGEST_TEXT$}", "+14155550123");
        assert!(phone(&spaced).is_ok() && phone(&format!("{spaced} ")).is_err());
        assert!(phone("+1234567").is_ok() && phone("+123456789012345").is_ok());
    }

    #[test]
    fn country_codes_need_not_be_assigned() {
        for code in 1..1_000 {
            let number = format!("+{code}123456789");
            assert_eq!(phone(&number).as_deref(), Ok(number.as_str()));
        }
    }

    proptest::proptest! {
        #[test]
        fn accepted_numbers_are_stable(text in "[+(]?[-0-9 ()./+x\u{a0}]{0,24}") {
            if let Ok(accepted) = phone(&text) {
                proptest::prop_assert_eq!(phone(&accepted), Ok(accepted.clone()));
                let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
                proptest::prop_assert_eq!(digits(&text.replacen("(0)", "", 1)), digits(&accepted));
            }
        }
    }
}
