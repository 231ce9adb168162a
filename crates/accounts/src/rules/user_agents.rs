//! The `User-Agent` of a client program, which users see in the list of their sessions.

use kernel::texts::is_control;

/// The maximum number of characters that are kept.
const MAX_CHARS: usize = 200;

/// The text of a `User-Agent` header (RFC 9110, section 10.1.5): at most 200 characters, without control
/// characters. The client chooses the text, so it can't be trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserAgent(String);

impl UserAgent {
    /// Reads the value of the header. Bytes that aren't UTF-8 are replaced, control characters are removed,
    /// and a value that is too long is truncated. Returns `None` if nothing is left.
    pub fn read(value: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(value);
        let visible = text.chars().filter(|c| !is_control(*c)).skip_while(|c| c.is_whitespace());
        let kept: String = visible.take(MAX_CHARS).collect();
        let kept = kept.trim_end();
        (!kept.is_empty()).then(|| Self(kept.to_owned()))
    }

    /// Returns the text of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A word in the `User-Agent` and the program that it indicates. The first match counts, because browsers
/// also list the browsers that they are compatible with.
const PROGRAMS: [(&str, &str); 14] = [
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("OpenAI/Python", "OpenAI for Python"),
    ("python-requests/", "Python"),
    ("Python", "Python"),
    ("Go-http-client/", "Go"),
    ("node", "Node.js"),
];

/// A word in the `User-Agent` and the operating system that it indicates. The first match counts.
const SYSTEMS: [(&str, &str); 7] = [
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
];

/// Describes a known client in words, such as `Firefox on Linux`. The text of an unknown client is returned
/// unchanged.
pub fn in_words(user_agent: &str) -> String {
    let find = |known: &[(&'static str, &'static str)]| {
        known.iter().find(|(word, _)| user_agent.contains(word)).map(|(_, name)| *name)
    };
    match (find(&PROGRAMS), find(&SYSTEMS)) {
        (Some(program), Some(system)) => format!("{program} on {system}"),
        (Some(name), None) => name.to_owned(),
        (None, _) => user_agent.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_words() {
        for (text, words) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
                 Safari/537.36 Edg/140.0.0.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 \
                 Safari/605.1.15",
                "Safari on macOS",
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile \
                 Safari/537.36",
                "Chrome on Android",
            ),
            ("curl/8.5.0", "curl"),
            ("<b>robot</b>", "<b>robot</b>"),
            ("", ""),
        ] {
            assert_eq!(in_words(text), words);
        }
    }

    fn read(value: &[u8]) -> Option<String> {
        UserAgent::read(value).map(|agent| agent.as_str().to_owned())
    }

    #[test]
    fn control_characters_are_left_out() {
        let cases: [(&[u8], Option<&str>); 9] = [
            (b"curl/8.5.0", Some("curl/8.5.0")),
            (b" Mozilla/5.0 (X11; Linux x86_64) ", Some("Mozilla/5.0 (X11; Linux x86_64)")),
            (b"a\tb\x7fc\x00d\x1b[31m", Some("abcd[31m")),
            ("a\u{85}b\u{2028}c\u{202e}d\u{2066}e".as_bytes(), Some("abcde")),
            ("Обозреватель/1".as_bytes(), Some("Обозреватель/1")),
            (b"a\xffb", Some("a\u{fffd}b")),
            (b"", None),
            (b" \t ", None),
            (b"\x01\x02", None),
        ];
        for (value, expected) in cases {
            assert_eq!(read(value).as_deref(), expected, "{value:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(read("ж".repeat(200).as_bytes()), Some("ж".repeat(200)));
        assert_eq!(read("ж".repeat(201).as_bytes()), Some("ж".repeat(200)));
        assert_eq!(read(&[b'\t'; 5_000]), None);
        let long = format!("{} x", "y".repeat(199));
        assert_eq!(read(long.as_bytes()), Some("y".repeat(199)));
    }
}
