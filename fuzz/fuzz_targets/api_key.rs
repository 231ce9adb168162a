//! Checks that a text is parsed as a key exactly if its prefix, alphabet, length and checksum are right. A
//! key is parsed to itself, and a typing mistake never results in another valid key.

#![cfg_attr(feature = "engine", no_main)]

use arbitrary::Arbitrary;
use fuzz::fuzz_target;
use tollkeeper::keys::secret::ApiKeySecret;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A random prefix and a random text.
    Any { prefix: &'a str, text: &'a str },
    /// A valid key with a typing mistake: a position and the character typed there.
    Key { digits: [u8; SECRET_CHARS], place: u8, typed: char, swap: bool },
}

fuzz_target!(|input: Input| match input {
    Input::Any { prefix, text } => check(prefix, text),
    Input::Key { digits, place, typed, swap } => {
        let secret: String =
            digits.iter().map(|digit| char::from(ALPHABET[usize::from(*digit) % 62])).collect();
        let body = format!("tk_{secret}");
        let key = format!("{body}{}", checksum(&body));
        check("tk_", &key);
        assert!(ApiKeySecret::parse("tk_", &key).is_some(), "{key}");
        let mut slip: Vec<char> = key.chars().collect();
        let place = usize::from(place) % slip.len();
        // A CRC detects every error burst of up to 32 bits, such as one wrong character or two swapped ones.
        if swap && place + 1 < slip.len() && place + 1 != body.len() {
            slip.swap(place, place + 1);
        } else {
            slip[place] = typed;
        }
        let slip: String = slip.into_iter().collect();
        check("tk_", &slip);
        assert_eq!(ApiKeySecret::parse("tk_", &slip).is_some(), slip == key, "{slip}");
    }
});

fn check(prefix: &str, text: &str) {
    let Some(key) = ApiKeySecret::parse(prefix, text) else {
        assert!(!is_key(prefix, text), "refused: {prefix:?} {text:?}");
        return;
    };
    assert!(is_key(prefix, text), "accepted: {prefix:?} {text:?}");
    assert_eq!(key.expose(), text);
    let again = ApiKeySecret::parse(prefix, key.expose()).expect("a key reads back");
    assert_eq!(again.hash(), key.hash());
    let shown = key.redacted();
    assert_eq!(format!("{key:?}"), "***");
    // The redacted form shows the prefix, the four characters after it, and the last four characters.
    let (head, tail) = (&text[..prefix.len() + 4], &text[text.len() - 4..]);
    assert_eq!(shown, format!("{head}…{tail}"), "{text}");
}

fn is_key(prefix: &str, text: &str) -> bool {
    let Some(rest) = text.strip_prefix(prefix) else {
        return false;
    };
    rest.len() == SECRET_CHARS + CHECKSUM_CHARS
        && rest.bytes().all(|byte| ALPHABET.contains(&byte))
        && text.ends_with(&checksum(&text[..prefix.len() + SECRET_CHARS]))
}

/// Computes the CRC32 (IEEE) bit by bit, and returns it in base62.
fn checksum(body: &str) -> String {
    let mut crc = u32::MAX;
    for byte in body.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    let mut rest = u64::from(!crc);
    let mut digits = Vec::new();
    for _ in 0..CHECKSUM_CHARS {
        digits.push(ALPHABET[(rest % 62) as usize]);
        rest /= 62;
    }
    digits.into_iter().rev().map(char::from).collect()
}
