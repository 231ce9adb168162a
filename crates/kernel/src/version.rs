//! Versions of objects that callers read and change, so that a change can be refused if another change came
//! first (docs/contract/README.md#concurrent-changes).

use std::fmt;

use serde::Serialize;

use crate::error::{Code, Error};
use crate::secrets::sha256;

/// The version of an object: a digest of its visible values. Each change results in a different version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u128);

impl Version {
    /// Returns the version of an object with these visible values: 128 bits of the SHA-256 of their JSON.
    ///
    /// # Errors
    /// The values can't be written as JSON.
    pub fn of(shown: &impl Serialize) -> Result<Self, Error> {
        let json = serde_json::to_vec(shown).map_err(Error::internal)?;
        let half = sha256(&json).into_iter().take(16);
        Ok(Self(half.fold(0, |number, byte| number << 8 | u128::from(byte))))
    }

    /// Parses the text of a version. Returns `None` if it isn't valid.
    pub fn parse(text: &str) -> Option<Self> {
        let version = Self(u128::from_str_radix(text, 16).ok()?);
        (version.to_string() == text).then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The version that a change expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Any version: the object is changed even if it has changed in the meantime.
    Any,
    /// A list of accepted versions.
    OneOf(Vec<Version>),
}

impl Expected {
    /// Refuses a change of an object whose version isn't expected.
    ///
    /// # Errors
    /// 412 `precondition_failed`.
    pub fn check(&self, current: Version) -> Result<(), Error> {
        match self {
            Self::OneOf(versions) if !versions.contains(&current) => Err(Code::PreconditionFailed.into()),
            Self::Any | Self::OneOf(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_half_of_the_hash_of_the_json() {
        let version = Version::of(&("a", Some(1), None::<i64>)).unwrap();
        // printf '["a",1,null]' | sha256sum | head -c 32
        assert_eq!(version.to_string(), "0ae764bffd3a17b6454c8d9ebf712311");
        for other in [("a", Some(1), Some(0)), ("a", None, None), ("", Some(1), None)] {
            assert_ne!(Version::of(&other).unwrap(), version, "{other:?}");
        }
    }

    #[test]
    fn only_the_text_of_a_version_is_parsed() {
        for number in [0, 1, 0xabc << 100, u128::MAX] {
            let text = Version(number).to_string();
            assert_eq!((text.len(), Version::parse(&text)), (32, Some(Version(number))));
        }
        let text = Version(0xabc << 100).to_string();
        let signed = text.replacen('0', "+", 1);
        for wrong in ["", "0", "x", &text.to_uppercase(), &format!("0{text}"), &signed] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn change_is_made_for_an_expected_version_only() {
        let allows = |expected: Expected, number| expected.check(Version(number)).is_ok();
        let one_of = |numbers: &[u128]| Expected::OneOf(numbers.iter().copied().map(Version).collect());
        assert!(allows(Expected::Any, 1) && allows(one_of(&[1]), 1) && allows(one_of(&[2, 1]), 1));
        assert!(!allows(one_of(&[]), 1) && !allows(one_of(&[1]), 2));
        let refused = one_of(&[1]).check(Version(2)).unwrap_err();
        assert_eq!((refused.code, refused.code.status().as_u16()), (Code::PreconditionFailed, 412));
    }
}
