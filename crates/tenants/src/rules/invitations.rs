//! The statuses of invitations (docs/contract/organizations.md#invitations).

use serde::Serialize;

use kernel::error::{Code, Error};
use schemars::JsonSchema;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The status of an invitation. An invitation that was withdrawn or replaced has no status, because it can no
/// longer be found.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema, EnumString, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum InvitationStatus {
    /// The invitation is open.
    Pending,
    /// The guest has accepted the invitation, or was already a member.
    Accepted,
    /// The invitation has expired without being accepted.
    Expired,
}

db::words!(InvitationStatus);

impl InvitationStatus {
    /// Every status.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns an error if the invitation was accepted: it can no longer be withdrawn or sent again.
    ///
    /// # Errors
    /// 409 `already_accepted`.
    pub fn check_not_accepted(self) -> Result<(), Error> {
        match self {
            Self::Pending | Self::Expired => Ok(()),
            Self::Accepted => Err(Code::AlreadyAccepted.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_invitation_stays_as_it_is() {
        for (status, refusal) in [
            (InvitationStatus::Pending, None),
            (InvitationStatus::Accepted, Some(Code::AlreadyAccepted)),
            (InvitationStatus::Expired, None),
        ] {
            let found = status.check_not_accepted().err().map(|error| error.code);
            assert_eq!(found, refusal, "{status:?}");
        }
    }

    #[test]
    fn status_words_parse() {
        for status in InvitationStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(*status));
        }
    }
}
