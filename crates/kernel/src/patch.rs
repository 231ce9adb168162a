//! Merge patches: a field is kept, cleared or set.

/// The effect of a merge patch on one field (RFC 7396).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Patch<T> {
    /// The field was absent and keeps its value.
    Keep,
    /// The field was null and is cleared.
    Clear,
    /// The field gets a new value.
    Set(T),
}

impl<T> Patch<T> {
    /// Creates the patch from the field: a value, null, or absent.
    pub fn of(value: Option<T>, null: bool) -> Self {
        match value {
            Some(value) => Self::Set(value),
            None if null => Self::Clear,
            None => Self::Keep,
        }
    }

    /// Returns the field's value after the patch.
    pub fn onto(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }

    /// Returns the same patch with `f` applied to its value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Patch<U> {
        match self {
            Self::Keep => Patch::Keep,
            Self::Clear => Patch::Clear,
            Self::Set(value) => Patch::Set(f(value)),
        }
    }
}
