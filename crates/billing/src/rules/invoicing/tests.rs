use proptest::prelude::*;

use super::*;
use catalog::{ComponentPrices, DiscountVersion, PartPrices, Price, VolumeDiscount};
use kernel::money::Ppm;

const MONTH: Month = Month::from_unix_months(672); // 2026-01

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

fn version(text: &str) -> i64 {
    Time::parse(text).unwrap().unix_ms()
}

/// The charge is the amount in whole nanos, as for each daily row.
fn used(
    model: &str,
    kind: Kind,
    on: Day,
    price_version: i64,
    tokens: (i64, i64),
    price: (i128, i128),
) -> BilledUsage {
    let amount = i128::from(tokens.0) * price.0 + i128::from(tokens.1) * price.1;
    let amount = Pico::from_units(amount);
    let (prompt_tokens, completion_tokens) = tokens;
    let posted = amount.floor_nano();
    BilledUsage {
        model: model.into(),
        kind,
        price_version,
        day: on,
        prompt_tokens,
        completion_tokens,
        cached_prompt_tokens: 0,
        parts: Parts::default(),
        amount,
        posted,
    }
}

fn rates(prompt: i128, cached_prompt: Option<i128>, completion: i128) -> ComponentPrices {
    ComponentPrices {
        prompt: Pico::from_units(prompt),
        cached_prompt: cached_prompt.map(Pico::from_units),
        completion: Pico::from_units(completion),
        parts: PartPrices::default(),
    }
}

fn price(version: i64, prompt: i128, completion: i128) -> Price {
    Price::new(Time::from_unix_ms(version), rates(prompt, None, completion))
}

fn tier((threshold, ppm): &(i64, i128)) -> VolumeDiscount {
    VolumeDiscount { threshold: *threshold, discount: Ppm::from_units(*ppm) }
}

/// Prices, and the tiers of all months.
fn book(prices: &[(&str, Price)], tiers: &[(i64, i128)]) -> PriceBook {
    let prices = prices.iter().map(|(model, price)| ((*model).to_owned(), price.clone()));
    let tiers = tiers.iter().map(tier).collect();
    PriceBook::new(prices, [DiscountVersion { effective_at: Time::from_unix_ms(0), tiers }])
}

fn lines(bill: &Bill) -> Vec<String> {
    let line = |item: &Item| {
        format!(
            "{} | {} | {} | {} | {}",
            item.kind.as_str(),
            item.description,
            item.quantity,
            item.unit_price,
            item.amount
        )
    };
    bill.items.iter().map(line).collect()
}

#[test]
fn stored_values_never_change() {
    let words: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
    assert_eq!(words, ["draft", "open", "paid", "void", "uncollectible"]);
    let words: Vec<_> = ItemKind::VARIANTS.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(words, ["usage", "late_usage", "discount", "rounding", "carried_over", "correction"]);
}

#[test]
fn month_closes_a_day_after_its_end() {
    let last = |text| last_closable(Time::parse(text).unwrap()).to_string();
    assert_eq!(last("2026-02-01T23:59:59.999Z"), "2025-12");
    assert_eq!(last("2026-02-02T00:00:00Z"), "2026-01");
    assert_eq!(last("2026-03-01T23:59:59.999Z"), "2026-01");
    assert_eq!(last("2024-03-02T00:00:00Z"), "2024-02");
    assert_eq!(last("2027-01-02T00:00:00Z"), "2026-12");
}

#[test]
fn lines_are_by_model_kind_of_token_and_price() {
    let (old, new) = (version("2024-01-01T00:00:00Z"), version("2026-01-10T12:00:00Z"));
    let rows = [
        used("svc-1", Kind::Chat, day("2026-01-12"), new, (100, 10), (3_000_000, 7_000_000)),
        used("svc-1", Kind::Chat, day("2026-01-02"), old, (1_000, 500), (2_000_000, 6_000_000)),
        used("svc-1", Kind::Chat, day("2026-01-03"), old, (1_000, 0), (2_000_000, 6_000_000)),
        used("embed", Kind::Embeddings, day("2026-01-03"), old, (7, 0), (100, 0)),
        used("svc-1", Kind::Chat, day("2025-12-31"), old, (5, -5), (2_000_000, 6_000_000)),
    ];
    let prices = [
        ("svc-1", price(old, 2_000_000, 6_000_000)),
        ("svc-1", price(new, 3_000_000, 7_000_000)),
        ("embed", price(old, 100, 0)),
    ];
    let bill = bill(MONTH, &rows, &[], &book(&prices, &[])).unwrap();
    assert_eq!(
        lines(&bill),
        [
            "usage | embed, input tokens | 7 | 0.0000000001 | 0.0000000007",
            "usage | svc-1, prompt tokens, price from 2024-01-01 | 2000 | 0.000002 | 0.004",
            "usage | svc-1, prompt tokens, price from 2026-01-10T12:00:00.000Z | 100 | 0.000003 | 0.0003",
            "usage | svc-1, completion tokens, price from 2024-01-01 | 500 | 0.000006 | 0.003",
            "usage | svc-1, completion tokens, price from 2026-01-10T12:00:00.000Z | 10 | 0.000007 | 0.00007",
            "late_usage | Late usage of 2025-12: svc-1, prompt tokens | 5 | 0.000002 | 0.00001",
            "late_usage | Late usage of 2025-12: svc-1, completion tokens | -5 | 0.000006 | -0.00003",
            "rounding | Rounding | 1 | -0.0000000007 | -0.0000000007",
        ]
    );
    assert_eq!((bill.amount.to_string().as_str(), bill.credited), ("0.00735", Nano::ZERO));
}

/// Usage of `m` in chats, of whose prompt tokens some were cached, at the price of [`cached_price`].
fn cached(on: &str, prompt: i64, cached: i64, completion: i64) -> BilledUsage {
    let amount = i128::from(prompt - cached) * 2_000_000
        + i128::from(cached) * 500_000
        + i128::from(completion) * 6_000_000;
    let amount = Pico::from_units(amount);
    BilledUsage {
        cached_prompt_tokens: cached,
        amount,
        posted: amount.floor_nano(),
        ..used("m", Kind::Chat, day(on), 0, (prompt, completion), (0, 0))
    }
}

/// Tokens of prompts at 0.000002, cached ones at 0.0000005, completion tokens at 0.000006.
fn cached_price() -> Price {
    Price::new(Time::from_unix_ms(0), rates(2_000_000, Some(500_000), 6_000_000))
}

#[test]
fn cached_tokens_are_a_line_of_their_own() {
    // 1,000 prompt tokens of which 400 were cached, and 200 completion tokens: 600 x 0.000002 = 0.0012,
    // 400 x 0.0000005 = 0.0002, 200 x 0.000006 = 0.0012; then 100 prompt tokens without cached ones: 0.0002.
    let rows = [cached("2026-01-05", 1_000, 400, 200), cached("2026-01-06", 100, 0, 0)];
    let both = bill(MONTH, &rows, &[], &book(&[("m", cached_price())], &[])).unwrap();
    assert_eq!(
        lines(&both),
        [
            "usage | m, prompt tokens | 700 | 0.000002 | 0.0014",
            "usage | m, cached prompt tokens | 400 | 0.0000005 | 0.0002",
            "usage | m, completion tokens | 200 | 0.000006 | 0.0012",
        ]
    );
    assert_eq!(both.amount.to_string(), "0.0028");
    // Without their own price, cached tokens count as other tokens: 1,000 x 0.000002 + 200 x 0.000006.
    let row = used("m", Kind::Chat, day("2026-01-05"), 0, (1_000, 200), (2_000_000, 6_000_000));
    let row = BilledUsage { cached_prompt_tokens: 400, ..row };
    let plain = bill(MONTH, &[row], &[], &book(&[("m", price(0, 2_000_000, 6_000_000))], &[])).unwrap();
    assert_eq!(
        lines(&plain),
        [
            "usage | m, prompt tokens | 1000 | 0.000002 | 0.002",
            "usage | m, completion tokens | 200 | 0.000006 | 0.0012",
        ]
    );
    // With another count the row wasn't rated at this price.
    let wrong = BilledUsage { cached_prompt_tokens: 399, ..cached("2026-01-05", 1_000, 400, 200) };
    let wrong = bill(MONTH, &[wrong], &[], &book(&[("m", cached_price())], &[])).unwrap();
    assert_eq!(
        lines(&wrong),
        ["usage | m, usage at a price that has left the catalog | 1 | 0.0026 | 0.0026"]
    );
}

#[test]
fn cached_tokens_count_for_discounts_before_others_of_their_day() {
    // Half the price above 1,000 prompt tokens. Day 5: 400 cached, then 400 others; day 6: 200 cached, all below
    // the threshold, then 300 others, all above it: 300 x 0.000002 / 2 = 0.0003.
    let book = book(&[("m", cached_price())], &[(1_000, 500_000)]);
    let rows = [cached("2026-01-05", 800, 400, 0), cached("2026-01-06", 500, 200, 0)];
    let month = bill(MONTH, &rows, &[], &book).unwrap();
    // 700 x 0.000002 + 600 x 0.0000005 = 0.0017.
    assert_eq!(
        lines(&month),
        [
            "usage | m, prompt tokens | 700 | 0.000002 | 0.0014",
            "usage | m, cached prompt tokens | 600 | 0.0000005 | 0.0003",
            "discount | Volume discount: m, prompt tokens | 1 | -0.0003 | -0.0003",
        ]
    );
    assert_eq!(month.amount.to_string(), "0.0014");
    // Taken back are the 200 cached tokens of day 6, which cost 0.0001: then only 100 tokens are above the
    // threshold, with 0.0001 of discount instead of 0.0003.
    let note = credit_note(&[cached("2026-01-06", -200, -200, 0)], &rows, &book).unwrap();
    assert_eq!(
        lines(&note),
        [
            "correction | Correction of 2026-01: m, cached prompt tokens | -200 | 0.0000005 | -0.0001",
            "discount | Volume discount of 2026-01 taken back: m, prompt tokens | 1 | 0.0002 | 0.0002",
        ]
    );
    assert_eq!(note.amount.to_string(), "0.0001", "the lost discount is worth more than the tokens");
    // Late usage of day 5, 100 cached: 0.00005. Its discount: 100 more others are above the threshold, which
    // is all 300 of day 6 and 100 of the 200 cached before them: 300 x 0.000001 + 100 x 0.00000025 = 0.000325.
    let late = bill(MONTH.plus(1), &[cached("2026-01-05", 100, 100, 0)], &rows, &book).unwrap();
    assert_eq!(
        lines(&late),
        [
            "late_usage | Late usage of 2026-01: m, cached prompt tokens | 100 | 0.0000005 | 0.00005",
            "discount | Volume discount of 2026-01: m, prompt tokens | 1 | -0.000025 | -0.000025",
        ]
    );
}

#[test]
fn unknown_price_keeps_the_amount() {
    let row = used("old", Kind::Chat, day("2026-01-05"), 0, (10, 10), (2_000, 3_000));
    for stale in [Vec::new(), vec![("old", price(0, 2_000, 4_000))]] {
        let book = book(&stale, &[(0, 500_000)]);
        let bill = bill(MONTH, std::slice::from_ref(&row), &[], &book).unwrap();
        let line = "usage | old, usage at a price that has left the catalog | 1 | 0.00000005 | 0.00000005";
        assert_eq!(lines(&bill), [line]);
        assert_eq!(bill.amount, row.posted);
    }
}

#[test]
fn late_usage_with_unknown_price_says_both() {
    let row = used("old", Kind::Chat, day("2025-12-05"), 0, (10, 10), (2_000, 3_000));
    let bill = bill(MONTH, &[row], &[], &PriceBook::default()).unwrap();
    let line = "late_usage | Late usage of 2025-12: old, usage at a price that has left the catalog | 1 | \
        0.00000005 | 0.00000005";
    assert_eq!(lines(&bill), [line]);
}

#[test]
fn zero_sums_make_no_line() {
    let row = |version, tokens| used("m", Kind::Chat, day("2026-01-05"), version, tokens, (1_000, 2_000));
    // A request without tokens at another price, and completions that were taken back.
    let rows = [row(1, (10, 5)), row(1, (0, -5)), row(2, (0, 0))];
    let prices = [1, 2].map(|at| ("m", price(at, 1_000, 2_000)));
    let bill = bill(MONTH, &rows, &[], &book(&prices, &[])).unwrap();
    assert_eq!(lines(&bill), ["usage | m, prompt tokens | 10 | 0.000000001 | 0.00000001"]);
}

/// Tokens of the model `m` at 0.000001 each.
fn million(on: &str, millions: i64) -> BilledUsage {
    used("m", Kind::Chat, day(on), 0, (millions * 1_000_000, 0), (1_000_000, 0))
}

/// Half the price above a million tokens.
fn half_above_a_million() -> PriceBook {
    book(&[("m", price(0, 1_000_000, 0))], &[(1_000_000, 500_000)])
}

#[test]
fn discount_belongs_to_the_month_of_use() {
    let book = half_above_a_million();
    // January has 1 M; 3 M more are reported late: 1 M at list price, 3 M at half of it, so 2.5 together.
    let january = bill(MONTH, &[million("2026-01-05", 1)], &[], &book).unwrap();
    assert_eq!(january.amount.to_string(), "1");
    let late = bill(MONTH.plus(1), &[million("2026-01-20", 3)], &[million("2026-01-05", 1)], &book).unwrap();
    assert_eq!(late.amount.to_string(), "1.5");
    assert_eq!(
        lines(&late),
        [
            "late_usage | Late usage of 2026-01: m, prompt tokens | 3000000 | 0.000001 | 3",
            "discount | Volume discount of 2026-01: m, prompt tokens | 1 | -1.5 | -1.5",
        ]
    );
    // 1 M late of January and 1 M of February reach no threshold.
    let both = [million("2026-01-20", 1), million("2026-02-05", 1)];
    assert_eq!(bill(MONTH.plus(1), &both, &[], &book).unwrap().amount.to_string(), "2");
}

#[test]
fn month_has_the_tiers_of_its_start() {
    let none = DiscountVersion { effective_at: MONTH.plus(1).start(), tiers: Vec::new() };
    let half = DiscountVersion { effective_at: MONTH.start(), tiers: vec![tier(&(1_000_000, 500_000))] };
    let book = PriceBook::new([("m".to_owned(), price(0, 1_000_000, 0))], [none, half]);
    let both = [million("2026-01-20", 2), million("2026-02-05", 2)];
    assert_eq!(bill(MONTH.plus(1), &both, &[], &book).unwrap().amount.to_string(), "3.5");
}

#[test]
fn credit_note_takes_back_the_discount() {
    let book = half_above_a_million();
    // 2 M cost 1.5, 1 M costs 1: the refund for 1 M is 0.5; for both it is 1.5.
    let before = [million("2026-01-05", 2)];
    let one = credit_note(&[million("2026-01-05", -1)], &before, &book).unwrap();
    assert_eq!((one.amount.to_string().as_str(), one.credited.to_string().as_str()), ("-0.5", "-0.5"));
    assert_eq!(
        lines(&one),
        [
            "correction | Correction of 2026-01: m, prompt tokens | -1000000 | 0.000001 | -1",
            "discount | Volume discount of 2026-01 taken back: m, prompt tokens | 1 | 0.5 | 0.5",
        ]
    );
    let both = credit_note(&[million("2026-01-05", -2)], &before, &book).unwrap();
    assert_eq!(both.amount.to_string(), "-1.5");
}

#[test]
fn credit_note_can_be_a_charge() {
    // A token at 1 before, one at 10 after the price rose; above one token everything is free. Without the
    // first token the second one is no longer above the threshold: 1 is refunded, and 10 are lost.
    let (old, new) = (version("2026-01-01T00:00:00Z"), version("2026-01-10T00:00:00Z"));
    let unit = 1_000_000_000_000;
    let prices = [("m", price(old, unit, 0)), ("m", price(new, 10 * unit, 0))];
    let book = book(&prices, &[(1, 1_000_000)]);
    let row = |on, version, tokens, price| used("m", Kind::Chat, day(on), version, (tokens, 0), (price, 0));
    let before = [row("2026-01-02", old, 1, unit), row("2026-01-12", new, 1, 10 * unit)];
    let note = credit_note(&[row("2026-01-02", old, -1, unit)], &before, &book).unwrap();
    assert_eq!(note.amount.to_string(), "9");
}

#[test]
fn late_usage_can_give_more_back_than_it_costs() {
    // A token at 10; above one token everything is free. A token of an earlier day at 1 is reported late: it
    // comes first, so that the other one is free. 1 is charged and 10 are refunded.
    let (old, new) = (version("2026-01-01T00:00:00Z"), version("2026-01-10T00:00:00Z"));
    let unit = 1_000_000_000_000;
    let prices = [("m", price(old, unit, 0)), ("m", price(new, 10 * unit, 0))];
    let book = book(&prices, &[(1, 1_000_000)]);
    let row = |on, version, price| used("m", Kind::Chat, day(on), version, (1, 0), (price, 0));
    let before = [row("2026-01-12", new, 10 * unit)];
    let late = bill(MONTH.plus(1), &[row("2026-01-02", old, unit)], &before, &book).unwrap();
    assert_eq!((late.amount.to_string().as_str(), late.credited.to_string().as_str()), ("-9", "10"));
}

#[test]
fn full_discount_never_makes_a_negative_amount() {
    // 1.5 nanos, of which 1 was charged: a full discount is 1, not 2.
    let row = used("m", Kind::Embeddings, day("2026-01-05"), 0, (15, 0), (100, 0));
    let book = book(&[("m", price(0, 100, 0))], &[(0, 1_000_000)]);
    let bill = bill(MONTH, &[row], &[], &book).unwrap();
    assert_eq!((bill.amount, bill.credited.units(), bill.exact), (Nano::ZERO, 1, Pico::ZERO));
    assert_eq!(lines(&bill).len(), 2);
}

#[test]
fn overflowing_bill_is_none() {
    let row = |tokens| used("m", Kind::Chat, day("2026-01-05"), 0, (tokens, 0), (1, 0));
    let rows = [row(i64::MAX), row(i64::MAX)];
    assert_eq!(bill(MONTH, &rows, &[], &book(&[("m", price(0, 1, 0))], &[])), None);
}

#[test]
fn debt_is_split_into_month_and_balance_before() {
    let split = |owed, unpaid, later, on_invoices| {
        let nano = Nano::from_units;
        let debt = split_debt(nano(owed), nano(unpaid), nano(later), nano(on_invoices));
        (debt.of_month.units(), debt.brought_forward.units())
    };
    assert_eq!(split(0, 0, 0, 0), (0, 0));
    assert_eq!(split(4, 4, 0, 0), (4, 0));
    assert_eq!(split(13, 10, 3, 0), (10, 0));
    assert_eq!(split(3, 0, 3, 0), (0, 0), "the debt is the next month's");
    assert_eq!(split(25, 10, 3, 12), (10, 0));
    assert_eq!(split(20, 10, 3, 12), (5, 0), "some credits' uses were not recorded");
    assert_eq!(split(30, 10, 3, 12), (10, 5));
    assert_eq!(split(5, -3, -1, 0), (0, 5));
}

proptest! {
    #[test]
    fn lines_sum_to_the_amount(
        days in prop::collection::vec(
            (-40_i64..31, 0_usize..3, -50_i64..10_000, 0_i64..=100, -50_i64..10_000), 0..30),
        prices in prop::collection::vec((0_i128..3_000_000, 0_i128..=100, 0_i128..3_000_000), 3..4),
        tiers in prop::collection::btree_map(0_i64..20_000, 0_i128..=1_000_000, 0..4),
    ) {
        let first = MONTH.first_day();
        let price_of = |model: usize| {
            let (prompt, cached_percent, completion) = prices[model];
            let rates = rates(prompt, Some(prompt * cached_percent / 100), completion);
            Price::new(Time::from_unix_ms(i64::try_from(model).unwrap()), rates)
        };
        let names = ["a", "b", "c"];
        let rows: Vec<_> = days.iter().map(|(offset, model, prompt, cached_percent, completion)| {
            let (day, version) = (first.plus(*offset), i64::try_from(*model).unwrap());
            let row = used(names[*model], Kind::Chat, day, version, (*prompt, *completion), (0, 0));
            let row = BilledUsage { cached_prompt_tokens: prompt * cached_percent / 100, ..row };
            let amount = cost(&price_of(*model), row.tokens()).unwrap();
            BilledUsage { amount, posted: amount.floor_nano(), ..row }
        }).collect();
        let prices: Vec<_> = (0..3).map(|model| (names[model], price_of(model))).collect();
        let tiers: Vec<_> = tiers.into_iter().collect();
        let book = book(&prices, &tiers);
        let bill = bill(MONTH, &rows, &[], &book).unwrap();
        let sum: i128 = bill.items.iter().map(|item| item.amount.units()).sum();
        prop_assert_eq!(sum, bill.amount.units() * 1_000);
        for item in &bill.items {
            prop_assert_eq!(item.unit_price.units() * i128::from(item.quantity), item.amount.units());
        }
        let posted: i128 = rows.iter().map(|row| row.posted.units()).sum();
        prop_assert_eq!(bill.amount.units(), posted - bill.credited.units());
        if rows.iter().all(|row| row.prompt_tokens >= 0 && row.completion_tokens >= 0) {
            prop_assert!(bill.amount >= Nano::ZERO);
        }
    }
}
