//! Notices of what has just been done: words in the query, sentences on the page.

/// What has just been done. A page shows its sentence after the redirect that ends a POST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    SignedOut,
    Registered,
    ResetRequested,
    OrganizationCreated,
    ProjectCreated,
    Changed,
    ProjectDeleted,
    KeyChanged,
    KeyDeleted,
    RotationEnded,
}

impl Done {
    /// Every notice with its word and its sentence.
    const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::SignedOut, "signed_out", "You are signed out."),
        (
            Self::Registered,
            "registered",
            "Your account is ready. A mail with a link to confirm your address is on its way.",
        ),
        (
            Self::ResetRequested,
            "reset_requested",
            "If there is an account with this address, a mail with a link is on its way to it.",
        ),
        (Self::OrganizationCreated, "organization_created", "The organization is ready."),
        (
            Self::ProjectCreated,
            "project_created",
            "The project is ready. Create an API key to call models with.",
        ),
        (Self::Changed, "changed", "The changes are saved."),
        (
            Self::ProjectDeleted,
            "project_deleted",
            "The project is deleted, with its API keys and memberships.",
        ),
        (Self::KeyChanged, "key_changed", "The changes are saved. They hold within a second."),
        (Self::KeyDeleted, "key_deleted", "The API key is deleted: it can't be used any more."),
        (Self::RotationEnded, "rotation_ended", "The previous secret is ended: it can't be used any more."),
    ];

    /// Returns the word, as in `?done=signed_out`.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(done, ..)| *done == self).map_or("", |(_, word, _)| word)
    }

    /// Returns the sentence for the word in a query string; text from a query is never shown.
    pub fn sentence(query: &str) -> Option<&'static str> {
        let word = query.split('&').find_map(|pair| pair.strip_prefix("done="))?;
        Self::ALL.iter().find(|(_, known, _)| *known == word).map(|(.., sentence)| *sentence)
    }
}
