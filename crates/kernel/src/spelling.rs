//! Suggestions for misspelled names.

/// Maximum number of characters of a name that are compared.
const MAX_CHARS: usize = 64;

/// Returns the candidate that a misspelled name was probably meant to be: at most a third of its letters
/// differ, ignoring case.
pub fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.chars().take(MAX_CHARS).collect::<String>().to_lowercase();
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let names = ["listen", "service_listen", "limits"];
        assert_eq!(closest("lisen", names.into_iter()), Some("listen"));
        assert_eq!(closest("LIMIT", names.into_iter()), Some("limits"));
        assert_eq!(closest("zebra", names.into_iter()), None);
    }
}
