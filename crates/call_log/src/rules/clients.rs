//! The programs that make calls.

use crate::words::words;

/// The maximum number of characters of an end user.
pub const MAX_END_USER_CHARS: usize = 128;

/// A family of client programs. The list is fixed, so that clients can't add to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserAgent {
    Other,
    OpenaiPython,
    OpenaiNode,
    AnthropicPython,
    AnthropicNode,
    OpenaiGo,
    Codex,
    ClaudeCode,
    Curl,
    PythonRequests,
    Httpx,
    Aiohttp,
    Node,
    Go,
    Java,
    Litellm,
    AiSdk,
    Browser,
}

words!(UserAgent {
    Other = 1 "other",
    OpenaiPython = 2 "openai-python",
    OpenaiNode = 3 "openai-node",
    AnthropicPython = 4 "anthropic-python",
    AnthropicNode = 5 "anthropic-node",
    OpenaiGo = 6 "openai-go",
    Codex = 7 "codex",
    ClaudeCode = 8 "claude-code",
    Curl = 9 "curl",
    PythonRequests = 10 "python-requests",
    Httpx = 11 "httpx",
    Aiohttp = 12 "aiohttp",
    Node = 13 "node",
    Go = 14 "go",
    Java = 15 "java",
    Litellm = 16 "litellm",
    AiSdk = 17 "ai-sdk",
    Browser = 18 "browser",
});

/// The beginnings of `User-Agent` headers, in lower case, and the families that they indicate.
const BEGINNINGS: &[(&str, UserAgent)] = &[
    ("openai/python", UserAgent::OpenaiPython),
    ("asyncopenai/python", UserAgent::OpenaiPython),
    ("openai/js", UserAgent::OpenaiNode),
    ("openai/go", UserAgent::OpenaiGo),
    ("anthropic/python", UserAgent::AnthropicPython),
    ("asyncanthropic/python", UserAgent::AnthropicPython),
    ("anthropic/js", UserAgent::AnthropicNode),
    ("codex", UserAgent::Codex),
    ("claude-cli", UserAgent::ClaudeCode),
    ("claude-code", UserAgent::ClaudeCode),
    ("curl/", UserAgent::Curl),
    ("python-requests/", UserAgent::PythonRequests),
    ("python-httpx/", UserAgent::Httpx),
    ("python/", UserAgent::Aiohttp),
    ("litellm", UserAgent::Litellm),
    ("ai/", UserAgent::AiSdk),
    ("ai-sdk/", UserAgent::AiSdk),
    ("node", UserAgent::Node),
    ("undici", UserAgent::Node),
    ("go-http-client/", UserAgent::Go),
    ("java", UserAgent::Java),
    ("okhttp/", UserAgent::Java),
    ("mozilla/", UserAgent::Browser),
];

impl UserAgent {
    /// Returns the family of a `User-Agent` header; `None` for an empty one.
    pub fn read(header: &[u8]) -> Option<Self> {
        let header = header.trim_ascii();
        let has = |beginning: &str| {
            header
                .get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
        };
        let found = BEGINNINGS.iter().find(|(beginning, _)| has(beginning));
        (!header.is_empty()).then(|| found.map_or(Self::Other, |(_, family)| *family))
    }
}

/// Returns the end user that a call names, without control characters and cut to the maximum length; `None`
/// if nothing is left.
pub fn end_user(text: &str) -> Option<String> {
    let kept: String = text.trim().chars().filter(|c| !c.is_control()).take(MAX_END_USER_CHARS).collect();
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_by_the_beginning() {
        for (header, family) in [
            ("OpenAI/Python 1.99.1", "openai-python"),
            ("AsyncOpenAI/Python 1.99.1", "openai-python"),
            ("OpenAI/JS 5.0.1", "openai-node"),
            ("codex_cli_rs/0.40.0 (Linux; x86_64)", "codex"),
            ("curl/8.5.0", "curl"),
            ("Mozilla/5.0 (X11) Firefox/140.0", "browser"),
            ("mine/1.0", "other"),
        ] {
            assert_eq!(UserAgent::read(header.as_bytes()).map(UserAgent::as_str), Some(family), "{header}");
        }
        assert_eq!(UserAgent::read(b"  "), None);
        let numbers: Vec<_> = UserAgent::ALL.iter().map(|family| family.number()).collect();
        assert_eq!(numbers, (1..=18).collect::<Vec<_>>());
    }

    #[test]
    fn end_users_are_cut_and_cleaned() {
        assert_eq!(end_user(" a\nb "), Some("ab".to_owned()));
        assert_eq!(end_user(" \n "), None);
        assert_eq!(end_user(&"é".repeat(200)), Some("é".repeat(128)));
    }
}
