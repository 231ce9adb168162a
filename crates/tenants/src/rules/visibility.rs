//! The rule for public projects.

use crate::roles::Visibility;
use kernel::error::{Code, Error};

/// Checks that a project is public only if its organization allows public projects.
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
    fn public_projects_need_the_organization_setting() {
        for (visibility, allowed, is_ok) in [
            (Visibility::Public, true, true),
            (Visibility::Public, false, false),
            (Visibility::Private, true, true),
            (Visibility::Private, false, true),
        ] {
            assert_eq!(check_visibility(visibility, allowed).is_ok(), is_ok, "{visibility:?} {allowed}");
        }
    }
}
