//! Logins, counted by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use kernel::error::Code;

use super::text::{Kind, Text};

/// Logins by their result.
#[derive(Debug, Default)]
pub struct Logins {
    counts: [AtomicU64; RESULTS.len()],
}

/// The results, each with its error code; `None` is success. The last result stands for all other errors.
const RESULTS: [(&str, Option<Code>); 6] = [
    ("success", None),
    ("invalid_credentials", Some(Code::InvalidCredentials)),
    ("too_many_attempts", Some(Code::TooManyAttempts)),
    ("email_not_verified", Some(Code::EmailNotVerified)),
    ("password_queue_full", Some(Code::PasswordQueueFull)),
    ("error", Some(Code::Internal)),
];

impl Logins {
    /// Counts a login that was refused with this code; `None` for a successful one.
    pub fn count(&self, refused: Option<Code>) {
        let known = RESULTS.iter().position(|(_, code)| *code == refused);
        if let Some(count) = self.counts.get(known.unwrap_or(RESULTS.len() - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the counts.
    pub fn render(&self, text: &mut Text) {
        let rows = RESULTS.iter().zip(&self.counts);
        let rows = rows.map(|((result, _), count)| (*result, count.load(Ordering::Relaxed)));
        let name = "tollkeeper_logins_total";
        text.each((name, Kind::Counter, "Logins by what came of them."), "result", rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_row() {
        let logins = Logins::default();
        for code in [None, Some(Code::TooManyAttempts), Some(Code::DatabaseUnavailable), Some(Code::Internal)]
        {
            logins.count(code);
        }
        let mut text = Text::new();
        logins.render(&mut text);
        let text = text.into_string();
        for row in ["success\"} 1", "invalid_credentials\"} 0", "too_many_attempts\"} 1", "error\"} 2"] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
    }
}
