//! Results that arrive out of order.

/// Returns values in the order of their positions.
pub fn in_order<T>(mut values: Vec<(usize, T)>) -> Vec<T> {
    values.sort_unstable_by_key(|(place, _)| *place);
    values.into_iter().map(|(_, value)| value).collect()
}

/// Merges two lists: each value of `others` goes to its position, and `values` fill the remaining positions
/// in order. `others` must be sorted by position.
pub fn merge<T>(values: Vec<T>, others: Vec<(usize, T)>) -> Vec<T> {
    if others.is_empty() {
        return values;
    }
    let mut merged = Vec::with_capacity(values.len() + others.len());
    let mut values = values.into_iter();
    for (place, other) in others {
        merged.extend(values.by_ref().take(place.saturating_sub(merged.len())));
        merged.push(other);
    }
    merged.extend(values);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_order_of_their_places() {
        assert_eq!(in_order(vec![(2, "c"), (0, "a"), (1, "b")]), ["a", "b", "c"]);
        assert_eq!(in_order(Vec::<(usize, ())>::new()), []);
    }

    #[test]
    fn others_are_merged_at_their_places() {
        assert_eq!(merge(vec!["a", "b"], vec![]), ["a", "b"]);
        assert_eq!(
            merge(vec!["b", "d", "e"], vec![(0, "a"), (2, "c"), (5, "f")]),
            ["a", "b", "c", "d", "e", "f"]
        );
        assert_eq!(merge(vec![], vec![(0, "a"), (1, "b")]), ["a", "b"]);
        assert_eq!(merge(vec!["a"], vec![(1, "b"), (2, "c")]), ["a", "b", "c"]);
    }
}
