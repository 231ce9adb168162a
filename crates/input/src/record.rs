//! The macro that declares a record together with its reader.

/// Declares a struct that is read field by field. `Record::read` reads exactly the fields of the struct, and
/// reads all of them even if one is invalid.
///
/// Each field has the method of [`Fields`](crate::fields::Fields) that reads it, with a default if the method
/// takes one. Its doc comment is its description in the schema. Fields in `reads` are read like the others,
/// but not stored. In `check`, every field is an `Option`, which is `None` if the field is invalid. `check`
/// reports problems that concern several fields or the program's state.
///
/// ```
/// # use input::{fields::Fields, record, types::Text};
/// record! {
///     /// A new password.
///     #[derive(Debug)]
///     pub struct NewPassword in () {
///         /// The new password.
///         password: Text<64> = required,
///         /// `true` to ask for another one at the next login.
///         is_temporary: bool = or(false),
///     }
///     reads {
///         /// The new password again.
///         repeated: Text<64> = required,
///     }
///     check(fields) {
///         if password.is_some() && repeated.is_some() && password != repeated {
///             fields.problem::<()>("repeated", "does_not_match", "`repeated` must match `password`.");
///         }
///     }
/// }
/// ```
#[macro_export]
macro_rules! record {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident in $state:ty {
            $(
                $(#[doc = $description:literal])*
                $field_visibility:vis $field:ident: $type:ty = $method:ident $(($default:expr))?
            ),+ $(,)?
        }
        $(reads {
            $(
                $(#[doc = $extra_description:literal])*
                $extra:ident: $extra_type:ty = $extra_method:ident $(($extra_default:expr))?
            ),+ $(,)?
        })?
        $(check($fields:ident) $check:block)?
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[doc = $description])* $field_visibility $field: $type,)+
        }

        impl $crate::fields::Record<$state> for $name {
            fn read(fields: &mut $crate::fields::Fields<'_, $state>) -> Option<Self> {
                $(
                    let $field: Option<$type> = fields
                        .described(concat!($($description,)*))
                        .$method(stringify!($field) $(, $default)?);
                )+
                $($(
                    let $extra: Option<$extra_type> = fields
                        .described(concat!($($extra_description,)*))
                        .$extra_method(stringify!($extra) $(, $extra_default)?);
                )+)?
                $(
                    let $fields = &mut *fields;
                    $check
                )?
                $($($extra?;)+)?
                Some(Self { $($field: $field?),+ })
            }
        }
    };
}
