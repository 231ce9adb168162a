//! Enums for the filters of pages.

/// Defines an enum for a query parameter, in which each value has a word and a label. The enum can be a field
/// of a record.
#[macro_export]
macro_rules! choice {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($variant:ident = ($word:literal, $label:literal)),+ $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $visibility enum $name {
            $($variant),+
        }

        impl $name {
            /// Every word with its label.
            pub const OPTIONS: &[(&'static str, &'static str)] = &[$(($word, $label)),+];
            const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word in a query.
            pub fn word(self) -> &'static str {
                self.into()
            }

            /// Returns the label on a page.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label),+
                }
            }
        }

        impl From<$name> for &'static str {
            fn from(choice: $name) -> Self {
                match choice {
                    $($name::$variant => $word),+
                }
            }
        }

        impl input::fields::Field for $name {
            fn read(
                value: input::json::Json<'_>,
                at: &input::fields::Location<'_>,
                problems: &mut input::fields::Problems,
            ) -> Option<Self> {
                input::types::one_of(value, at, problems, Self::ALL)
            }
            fn schema() -> serde_json::Value {
                serde_json::json!({"type": "string", "enum": [$($word),+]})
            }
        }
    };
}
