//! Settings of the log.

/// Table `log`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How a line looks.
    pub format: Format,
    /// A level, or a level for each part of the program: `info,keys=debug`.
    pub level: String,
    /// Whether every request gets a line.
    pub access: bool,
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people.
    Text,
    /// For machines: an object a line.
    Json,
}

impl Format {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
