//! Permissions of API keys.

use std::fmt;

use serde::{Serialize, Serializer};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A permission of an API key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Permission {
    /// Chat completions.
    Chat,
    /// Embeddings of texts.
    Embeddings,
    /// The model catalog.
    Models,
    /// Files.
    Files,
}

impl Permission {
    /// Every permission, in the order used in lists.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
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

/// A set of permissions, stored in the database as words separated by spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Permissions(u8);

impl Permissions {
    /// Returns `true` if the set contains every permission.
    pub fn is_all(self) -> bool {
        self == Self::all()
    }

    /// Returns the set of all permissions.
    pub fn all() -> Self {
        Permission::ALL.iter().copied().collect()
    }

    /// Returns `true` if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if the set contains this permission.
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    /// Returns the permissions in the order chat, embeddings, models, files.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |permission| self.contains(*permission))
    }

    /// Parses words separated by single spaces. Returns `None` if a word is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        text.split(' ').map(|word| word.parse::<Permission>().ok()).collect()
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
        let member_and_caller: Permissions =
            [Permission::Files, Permission::Chat, Permission::Files].into_iter().collect();
        assert!(
            member_and_caller.contains(Permission::Chat)
                && !member_and_caller.contains(Permission::Models)
                && !member_and_caller.is_empty()
        );
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
