//! Enums whose values are words in replies and numbers in the database.

/// Implements the words and the numbers of an enum.
macro_rules! words {
    ($type:ident { $($variant:ident = $number:literal $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word in replies.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// Returns the number in the database.
            pub const fn number(self) -> i64 {
                match self {
                    $(Self::$variant => $number),+
                }
            }

            /// Returns the value with this number.
            pub fn of_number(number: i64) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.number() == number)
            }
        }
    };
}
pub(crate) use words;
