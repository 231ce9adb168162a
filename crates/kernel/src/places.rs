//! Results that come out of order.

/// Returns values in the order of their places.
pub fn in_order<T>(mut values: Vec<(usize, T)>) -> Vec<T> {
    values.sort_by_key(|(place, _)| *place);
    values.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_order_of_their_places() {
        assert_eq!(in_order(vec![(2, "c"), (0, "a"), (1, "b")]), ["a", "b", "c"]);
        assert_eq!(in_order(Vec::<(usize, ())>::new()), []);
    }
}
