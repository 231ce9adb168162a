//! Which projects may be public.

use crate::roles::Visibility;
use kernel::error::{Code, Error};

/// A public project needs an organization that allows them.
///
/// # Errors
/// 400 `public_projects_not_allowed`.
pub fn check_visibility(visibility: Visibility, allow_public_projects: bool) -> Result<(), Error> {
    if visibility == Visibility::Public && !allow_public_projects {
        return Err(Error::new(Code::PublicProjectsNotAllowed).param("visibility"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_organization_allows_is_public() {
        for (visibility, allowed, good) in [
            (Visibility::Public, true, true),
            (Visibility::Public, false, false),
            (Visibility::Private, true, true),
            (Visibility::Private, false, true),
        ] {
            assert_eq!(check_visibility(visibility, allowed).is_ok(), good, "{visibility:?} {allowed}");
        }
    }
}
