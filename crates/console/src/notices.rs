//! Notices of what has just been done: words in the query, sentences on the page.

/// What has just been done. A page shows its sentence after the redirect that ends a POST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    SignedOut,
    Registered,
    ResetRequested,
    OrganizationCreated,
}

impl Done {
    /// Every notice with its word and its sentence.
    const ALL: [(Self, &'static str, &'static str); 4] = [
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
