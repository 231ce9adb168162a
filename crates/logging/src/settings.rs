//! The settings of the log.

/// The table `log` of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    pub format: Format,
    /// The log level, or a level for each part of the program, such as `info,billing=debug`.
    pub level: String,
    /// `true` if every request gets a line.
    pub access: bool,
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Text for people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

impl Format {
    /// Returns the word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
