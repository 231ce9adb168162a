use proptest::prelude::*;

use super::*;
use crate::money::Ppm;

const MONTH: Month = Month::from_unix_months(672); // 2026-01

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

fn version(text: &str) -> i64 {
    Time::parse(text).unwrap().unix_ms()
}

/// What is charged is the whole nanos of it, as the queue does it for each row.
fn used(
    model: &str,
    kind: Kind,
    on: Day,
    price_version: i64,
    tokens: (i64, i64),
    price: (i128, i128),
) -> Used {
    let amount = i128::from(tokens.0) * price.0 + i128::from(tokens.1) * price.1;
    let amount = Pico::from_units(amount);
    let (prompt_tokens, completion_tokens) = tokens;
    let posted = amount.floor_nano();
    Used {
        model: model.into(),
        kind,
        price_version,
        day: on,
        prompt_tokens,
        completion_tokens,
        amount,
        posted,
    }
}

fn price(version: i64, prompt: i128, completion: i128) -> Price {
    Price {
        effective_at: Time::from_unix_ms(version),
        prompt: Pico::from_units(prompt),
        completion: Pico::from_units(completion),
    }
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
fn the_words_in_the_database_stay() {
    assert_eq!(Status::ALL.map(Status::as_str), ["draft", "open", "paid", "void", "uncollectible"]);
    assert_eq!(ItemKind::ALL.map(ItemKind::as_str), ["usage", "late_usage", "discount", "rounding"]);
}

#[test]
fn a_month_closes_a_day_after_its_end() {
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
    let price_of = |model: &str, at: i64| match (model, at) {
        ("svc-1", at) if at == old => Some(price(old, 2_000_000, 6_000_000)),
        ("svc-1", at) if at == new => Some(price(new, 3_000_000, 7_000_000)),
        ("embed", at) if at == old => Some(price(old, 100, 0)),
        _ => None,
    };
    let bill = bill(MONTH, &rows, &[], price_of).unwrap();
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

#[test]
fn a_price_that_is_gone_leaves_its_amount() {
    let row = used("old", Kind::Chat, day("2026-01-05"), 0, (10, 10), (2_000, 3_000));
    let tiers = [VolumeDiscount { threshold: 0, discount: Ppm::from_units(500_000) }];
    for stale in [None, Some(price(0, 2_000, 4_000))] {
        let bill = bill(MONTH, std::slice::from_ref(&row), &tiers, |_, _| stale.clone()).unwrap();
        let line = "usage | old, usage at a price that has left the catalog | 1 | 0.00000005 | 0.00000005";
        assert_eq!(lines(&bill), [line]);
        assert_eq!(bill.amount, row.posted);
    }
}

#[test]
fn late_usage_at_a_price_that_is_gone_says_both() {
    let row = used("old", Kind::Chat, day("2025-12-05"), 0, (10, 10), (2_000, 3_000));
    let bill = bill(MONTH, &[row], &[], |_, _| None).unwrap();
    let line = "late_usage | Late usage of 2025-12: old, usage at a price that has left the catalog | 1 | 0.00000005 | 0.00000005";
    assert_eq!(lines(&bill), [line]);
}

#[test]
fn what_adds_up_to_nothing_is_no_line() {
    let row = |version, tokens| used("m", Kind::Chat, day("2026-01-05"), version, tokens, (1_000, 2_000));
    // A request without tokens at another price, and completions that were taken back.
    let rows = [row(1, (10, 5)), row(1, (0, -5)), row(2, (0, 0))];
    let bill = bill(MONTH, &rows, &[], |_, at| Some(price(at, 1_000, 2_000))).unwrap();
    assert_eq!(lines(&bill), ["usage | m, prompt tokens | 10 | 0.000000001 | 0.00000001"]);
}

#[test]
fn what_comes_back_takes_no_discount_away() {
    let tiers = [VolumeDiscount { threshold: 0, discount: Ppm::from_units(1_000_000) }];
    let rows = [
        used("free", Kind::Chat, day("2026-01-05"), 0, (10, 0), (100, 0)),
        used("taken-back", Kind::Chat, day("2025-12-05"), 0, (-50, 0), (100, 0)),
    ];
    let bill = bill(MONTH, &rows, &tiers, |_, _| Some(price(0, 100, 0))).unwrap();
    // One nano is free, five come back.
    assert_eq!((bill.credited.units(), bill.amount.units()), (1, -5));
}

#[test]
fn what_is_free_costs_nothing_and_no_less() {
    // One and a half nano, of which one was charged: all of it free is one, not two.
    let row = used("m", Kind::Embeddings, day("2026-01-05"), 0, (15, 0), (100, 0));
    let tiers = [VolumeDiscount { threshold: 0, discount: Ppm::from_units(1_000_000) }];
    let bill = bill(MONTH, &[row], &tiers, |_, _| Some(price(0, 100, 0))).unwrap();
    assert_eq!((bill.amount, bill.credited.units(), bill.exact), (Nano::ZERO, 1, Pico::ZERO));
    assert_eq!(lines(&bill).len(), 2);
}

#[test]
fn a_bill_out_of_bounds_is_none() {
    let row = |tokens| used("m", Kind::Chat, day("2026-01-05"), 0, (tokens, 0), (1, 0));
    let rows = [row(i64::MAX), row(i64::MAX)];
    assert_eq!(bill(MONTH, &rows, &[], |_, _| Some(price(0, 1, 0))), None);
}

#[test]
fn due_is_this_month_s_part_of_the_debt() {
    let due = |owed, later, before| {
        let nano = Nano::from_units;
        due(nano(owed), nano(later), nano(before)).units()
    };
    assert_eq!(due(0, 0, 0), 0);
    assert_eq!(due(4, 0, 0), 4);
    assert_eq!(due(13, 3, 0), 10);
    assert_eq!(due(3, 3, 0), 0, "the debt is the next month's");
    assert_eq!(due(2, 3, 0), 0, "and a part of that was paid");
    assert_eq!(due(25, 3, 12), 10);
    assert_eq!(due(20, 3, 12), 5);
    assert_eq!(due(5, -3, 0), 5);
}

#[test]
fn the_oldest_due_is_covered_first() {
    let id = |number| InvoiceId::from_parts(Time::from_unix_ms(0), number);
    let dues = [(id(1), Nano::from_units(5)), (id(2), Nano::from_units(7))];
    let after = |covered| -> Vec<(bool, i128)> {
        let changed = cover(&dues, Nano::from_units(covered));
        changed.into_iter().map(|(invoice, due)| (invoice == id(1), due.units())).collect()
    };
    assert_eq!(after(0), []);
    assert_eq!(after(3), [(true, 2)]);
    assert_eq!(after(5), [(true, 0)]);
    assert_eq!(after(6), [(true, 0), (false, 6)]);
    assert_eq!(after(100), [(true, 0), (false, 0)]);
}

proptest! {
    #[test]
    fn the_lines_always_sum_to_the_amount(
        days in prop::collection::vec((-40_i64..31, 0_usize..3, -50_i64..10_000, -50_i64..10_000), 0..30),
        prices in prop::collection::vec((0_i128..3_000_000, 0_i128..3_000_000), 3..4),
        tiers in prop::collection::btree_map(0_i64..20_000, 0_i128..=1_000_000, 0..4),
    ) {
        let first = MONTH.first_day();
        let rows: Vec<_> = days.iter().map(|(offset, model, prompt, completion)| {
            let name = ["a", "b", "c"][*model];
            used(name, Kind::Chat, first.plus(*offset), i64::try_from(*model).unwrap(), (*prompt, *completion), prices[*model])
        }).collect();
        let tiers: Vec<_> = tiers.into_iter()
            .map(|(threshold, ppm)| VolumeDiscount { threshold, discount: Ppm::from_units(ppm) }).collect();
        let price_of = |_: &str, at: i64| {
            let (prompt, completion) = prices[usize::try_from(at).unwrap()];
            Some(price(at, prompt, completion))
        };
        let bill = bill(MONTH, &rows, &tiers, price_of).unwrap();
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
