//! Permissions of API keys.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a key may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Chat completions.
    Chat,
    /// Vectors of texts.
    Embeddings,
    /// The model catalog.
    Models,
    /// Files.
    Files,
}

impl Permission {
    /// Every permission, in the order in which lists show them.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Embeddings, Self::Models, Self::Files];

    /// The word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Files => "files",
        }
    }

    /// Reads the word in JSON.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == text)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Chat => 1,
            Self::Embeddings => 2,
            Self::Models => 4,
            Self::Files => 8,
        }
    }
}

/// A set of permissions; in the database the words with a space between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Permissions(u8);

impl Permissions {
    /// Whether every permission is in it.
    pub fn is_all(self) -> bool {
        self == Self::all()
    }

    /// Every permission.
    pub fn all() -> Self {
        Permission::ALL.into_iter().collect()
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// In the order chat, embeddings, models, files.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.contains(*permission))
    }

    /// Reads words with single spaces between them; `None` when one is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        text.split(' ').map(Permission::parse).collect()
    }
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |bits, permission| bits | permission.bit()))
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, permission) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " " })?;
            f.write_str(permission.as_str())?;
        }
        Ok(())
    }
}

impl Serialize for Permissions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Permission::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_a_set_in_a_fixed_order() {
        let cases = [
            ("", Some("")),
            ("chat", Some("chat")),
            ("files chat", Some("chat files")),
            ("chat chat", Some("chat")),
            ("files models embeddings chat", Some("chat embeddings models files")),
            ("chat  files", None),
            (" chat", None),
            ("Chat", None),
            ("audio", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Permissions::parse(text).map(|p| p.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(Permissions::all().to_string(), "chat embeddings models files");
        assert_eq!(
            serde_json::to_string(&Permissions::all()).unwrap(),
            r#"["chat","embeddings","models","files"]"#
        );
        let two: Permissions = [Permission::Files, Permission::Chat, Permission::Files].into_iter().collect();
        assert!(two.contains(Permission::Chat) && !two.contains(Permission::Models) && !two.is_empty());
        assert!(Permissions::default().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn every_set_reads_back(bits in 0_u8..16) {
            let set = Permissions(bits);
            proptest::prop_assert_eq!(Permissions::parse(&set.to_string()), Some(set));
            proptest::prop_assert_eq!(set.iter().collect::<Permissions>(), set);
        }
    }
}
