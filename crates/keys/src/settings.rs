//! Settings of API keys.

/// Table `api_keys`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rights of API keys on management endpoints.
    pub management: Management,
    /// The prefix of new keys.
    pub prefix: String,
    /// `true` if a sealed copy of a key's secret is kept, so that a rotation can return the previous one.
    pub keep_sealed: bool,
    /// How long the previous secret of a rotated key stays valid, in hours.
    pub rotation_grace_hours: u32,
}

/// The rights of API keys on management endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Management {
    /// The rights of their creator.
    Full,
    /// Only reads.
    Read,
    /// Nothing.
    None,
}

impl Management {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Read => "read",
            Self::None => "none",
        }
    }
}
