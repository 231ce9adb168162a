//! Versions of prices and discounts. Versions in force never change.

use super::*;

/// Returns the versions that a catalog adds to the versions of `old`, or the problems.
fn added(
    new: &Catalog,
    old: &Catalog,
    is_used: bool,
    closed_before: Option<Time>,
) -> Result<NewVersions, String> {
    let stored = StoredState { book: old.book(), now: NOW, is_used, closed_before };
    new.new_versions(&stored).map_err(|error| error.to_string())
}

#[test]
fn price_in_force_never_changes() {
    let (past, present, soon, future) =
        ("2026-01-01T00:00:00Z", "2027-01-15T08:00:00Z", "2027-01-15T08:01:00Z", "2027-01-15T08:01:00.001Z");
    assert_eq!(Time::parse(present), Some(NOW));
    let with = |prices: &[String]| catalog_of(&[&format!("prices = [{}]", prices.join(", "))]);
    let old = with(&[price(past, 1), price(present, 2), price(soon, 3), price(future, 4)]);
    let all = |last: &[String]| [&[price(past, 1), price(present, 2), price(soon, 3)][..], last].concat();
    // The expected result: the number of refused lines, or the numbers of added or withdrawn versions and of
    // warnings.
    let cases = [
        (all(&[price(future, 4)]), Ok((0, 0))),
        (all(&[price(future, 5)]), Ok((1, 0))),
        (all(&[]), Ok((1, 0))),
        // The file lacks a price that is in force or will be within a minute, and a price that no longer is.
        (vec![price(past, 1), price(soon, 3), price(future, 4)], Ok((0, 1))),
        (vec![price(past, 1), price(present, 2), price(future, 4)], Ok((0, 1))),
        (vec![price(present, 2), price(soon, 3), price(future, 4)], Ok((0, 0))),
        (all(&[price(future, 4), price("2026-06-01T00:00:00Z", 7)]), Ok((1, 1))),
        (vec![price(past, 1), price(present, 3), price(soon, 3), price(future, 4)], Err(1)),
        (vec![price(past, 2), price(present, 3), price(soon, 4), price(future, 5)], Err(3)),
    ];
    for (prices, expected) in cases {
        let found = added(&with(&prices), &old, true, None);
        let found = found.as_ref().map(|new| (new.prices.len(), new.warnings.len()));
        assert_eq!(found.map_err(|problems| problems.lines().count()), expected, "{prices:?}");
        // No usage has been rated yet, so any change to the file is accepted.
        assert!(added(&with(&prices), &old, false, None).is_ok(), "{prices:?}");
    }
    let error = added(&with(&[price(present, 3)]), &old, true, None).unwrap_err();
    let expected = "c:10: model `m`: `prices`: the price from 2027-01-15T08:00:00.000Z on is in force with \
        prompt 2, completion 0 and can't change: keep it, and add one with a different `effective_at`";
    assert_eq!(error, expected);
}

#[test]
fn closed_months_get_no_new_versions() {
    let (closed, open) = ("2026-11-30T23:59:59.999Z", "2026-12-01T00:00:00Z");
    let with = |instants: &[&str]| {
        let prices: Vec<_> = instants.iter().map(|instant| price(instant, 1)).collect();
        let discounts = instants.iter().skip(1).map(|instant| {
            format!("[[volume_discounts]]\neffective_at = {instant}\nthreshold = 1\ndiscount = 1\n")
        });
        let text = model(&format!("prices = [{}]", prices.join(", "))) + &discounts.collect::<String>();
        Catalog::parse(&text, "c").unwrap()
    };
    let old = with(&["2026-01-01T00:00:00Z"]);
    let since = Time::parse(open);
    assert!(added(&with(&["2026-01-01T00:00:00Z", open]), &old, true, since).is_ok());
    let late = with(&["2026-01-01T00:00:00Z", closed]);
    let problems = "c:10: model `m`: `prices`: months before 2026-12-01 are closed, so it can't apply from \
        2026-11-30T23:59:59.999Z on: give it a later `effective_at`";
    assert_eq!(added(&late, &old, true, since).unwrap_err(), problems);
    assert!(added(&late, &old, true, None).is_ok());
    // A model that had no price can't have been used.
    let priced = catalog_of(&["", &format!("id = \"new\"\nprices = [{}]", price(closed, 1))]);
    assert_eq!(added(&priced, &catalog_of(&[""]), true, since).unwrap().prices.len(), 1);
}

#[test]
fn month_has_the_discounts_of_its_first_instant() {
    let (february, march) = ("2026-02-01T00:10:00Z", "2026-03-01T00:00:00Z");
    let catalog = with_discounts(&[("", 9, 1), ("", 5, 1), (february, 7, 1), (march, 0, 0)]);
    let tiers = |month: i64| {
        let tiers = catalog.tiers_of_month(Month::from_unix_months(672 + month)).iter();
        tiers.map(|tier| tier.threshold).collect::<Vec<_>>()
    };
    // A version that begins within February applies from March on. That version has no tiers.
    assert_eq!(
        [tiers(-600), tiers(0), tiers(1), tiers(2), tiers(3)],
        [vec![5, 9], vec![5, 9], vec![5, 9], vec![], vec![]]
    );
    let at = |time: &str| catalog.tiers_at(Time::parse(time).unwrap()).len();
    assert_eq!((at("2026-02-01T00:09:59.999Z"), at(february), at(march)), (2, 1, 0));
}

#[test]
fn discounts_in_force_never_change() {
    let (past, future) = ("2026-12-01T00:00:00Z", "2027-02-01T00:00:00Z");
    let none = with_discounts(&[]);
    let first = added(&none, &Catalog::empty(), false, None).unwrap();
    assert_eq!(first.discounts, [(BEGINNING, Some(Vec::new()))], "no discounts are a version, too");
    let none =
        none.with_book(PriceBook::new([], [DiscountVersion { effective_at: BEGINNING, tiers: Vec::new() }]));
    let error = added(&with_discounts(&[("", 5, 1)]), &none, true, None).unwrap_err();
    let expected = "c:11: volume discount: the discounts without `effective_at` are in force (none) and \
                    can't change: keep them, and add the new list with a different `effective_at`";
    assert_eq!(error, expected);
    let old = with_discounts(&[("", 5, 1), (past, 6, 1), (future, 7, 1)]);
    let cases = [
        (with_discounts(&[("", 5, 1), (past, 6, 1), (future, 8, 1)]), Ok((1, 0))),
        (with_discounts(&[("", 5, 1), (past, 6, 1)]), Ok((1, 0))),
        (with_discounts(&[(past, 6, 1), (future, 7, 1)]), Ok((0, 0))),
        (with_discounts(&[("", 5, 1), (future, 7, 1)]), Ok((0, 1))),
        (
            with_discounts(&[("", 5, 1), (past, 6, 1), ("2027-01-01T00:00:00Z", 0, 0), (future, 7, 1)]),
            Ok((1, 1)),
        ),
        (with_discounts(&[("", 5, 1), (past, 6, 1), (past, 7, 1), (future, 7, 1)]), Err(1)),
        (with_discounts(&[("", 4, 1), (past, 0, 0), (future, 7, 1)]), Err(2)),
    ];
    for (new, expected) in cases {
        let found = added(&new, &old, true, None);
        let found = found.as_ref().map(|new| (new.discounts.len(), new.warnings.len()));
        assert_eq!(found.map_err(|problems| problems.lines().count()), expected, "{new:?}");
    }
    // Before any usage, versions that the file lacks are deleted.
    let fresh = added(&with_discounts(&[]), &old, false, None).unwrap();
    assert_eq!((fresh.discounts.len(), fresh.discounts[0].1.as_deref()), (3, Some(&[][..])));
}

#[test]
fn price_of_cached_tokens_belongs_to_its_version() {
    let with = |cached: &str| {
        let price = format!("prompt_tokens = 2, {cached}completion_tokens = 3");
        catalog_of(&[&format!("prices = [{{ effective_at = 2024-01-01T00:00:00Z, {price} }}]")])
    };
    let (none, half, dear) =
        (with(""), with("cached_prompt_tokens = \"0.5\", "), with("cached_prompt_tokens = 2, "));
    let cached = |catalog: &Catalog| catalog.get("m").unwrap().prices[0].cached_prompt;
    assert_eq!([&none, &half, &dear].map(cached), [None, Pico::parse("0.5"), Pico::parse("2")]);
    let expected = |words: &str| {
        format!(
            "c:10: model `m`: `prices`: the price from 2024-01-01T00:00:00.000Z on is in force with {words} \
             and can't change: keep it, and add one with a different `effective_at`"
        )
    };
    // A version that was stored before such prices existed doesn't have them.
    let refused = added(&half, &none, true, None).unwrap_err();
    assert_eq!(refused, expected("prompt 2, completion 3"));
    let refused = added(&none, &half, true, None).unwrap_err();
    assert_eq!(refused, expected("prompt 2, cached prompt 0.5, completion 3"));
    assert!(added(&dear, &half, true, None).is_err() && added(&dear, &none, true, None).is_err());
    assert_eq!(added(&half, &half, true, None).unwrap().prices, []);
    assert_eq!(added(&half, &none, false, None).unwrap().prices.len(), 1);
    assert_eq!(half.changes_from(&none).changed, ["m"]);
    // The text of a catalog without such prices is the same as in earlier versions.
    assert_eq!(half.canonical().replace("cached_prompt 500000000000\n", ""), none.canonical());
    assert!(none.canonical().ends_with("(1704067200000, 2000000000000, 3000000000000)\n"));
}
