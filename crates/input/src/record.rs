//! The macro that declares a record together with its reader.

/// Declares a struct that is read field by field. `Record::read` reads exactly the fields of the struct, and reads
/// all of them before it fails because of one.
///
/// Each field names the method of [`Fields`](crate::fields::Fields) that reads it, and its default where the
/// method takes one. Fields in `reads` are read like the others but not kept. `check` sees every field as an
/// `Option`, `None` where it is invalid, and reports problems that concern several fields or the program's state.
///
/// ```
/// # use input::{fields::Fields, record, types::Text};
/// record! {
///     /// A new password.
///     #[derive(Debug)]
///     pub struct NewPassword in () {
///         password: Text<64> = required,
///         is_temporary: bool = or(false),
///     }
///     reads {
///         repeated: Text<64> = required,
///     }
///     check(fields) {
///         if password.is_some() && repeated.is_some() && password != repeated {
///             fields.problem::<()>("repeated", "does_not_match", "`repeated` must repeat `password`.");
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
                $(#[$field_attribute:meta])*
                $field_visibility:vis $field:ident: $type:ty = $method:ident $(($default:expr))?
            ),+ $(,)?
        }
        $(reads {
            $($extra:ident: $extra_type:ty = $extra_method:ident $(($extra_default:expr))?),+ $(,)?
        })?
        $(check($fields:ident) $check:block)?
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $type,)+
        }

        impl $crate::fields::Record<$state> for $name {
            fn read(fields: &mut $crate::fields::Fields<'_, $state>) -> Option<Self> {
                $(let $field: Option<$type> = fields.$method(stringify!($field) $(, $default)?);)+
                $($(
                    let $extra: Option<$extra_type> =
                        fields.$extra_method(stringify!($extra) $(, $extra_default)?);
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
