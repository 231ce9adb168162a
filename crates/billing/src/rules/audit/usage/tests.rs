//! Tests of [`Usage`] by hand-written rows.

use super::*;

#[test]
fn daily_rows_sum_up_events_and_post_whole_nanos() {
    let day = Day::parse("2026-03-09").unwrap();
    let key = |day| DailyKey {
        project_id: "p".into(),
        day,
        api_key_id: "k".into(),
        model: "m".into(),
        price_version: 5,
        kind: "chat".into(),
    };
    let sums = |requests, tokens, pico| UsageSums {
        requests,
        prompt_tokens: tokens,
        completion_tokens: tokens * 3,
        cached_prompt_tokens: tokens / 2,
        parts: Parts::default(),
        amount: Pico::from_units(pico),
    };
    let row = |sums: UsageSums, months, posted| DailyRow {
        key: key(day),
        month: day.month().plus(months),
        sums,
        posted: Nano::from_units(posted),
    };
    let event = |sums| EventRow {
        source: "s".into(),
        event_id: "e".into(),
        key: key(day),
        sums,
        billed_month: Some(day.month()),
        rated_month: None,
    };
    let mut usage = Usage::default();
    assert_eq!(usage.daily(row(sums(2, 20, 2_999), 0, 2)), None);
    // A correction after the month was closed: negative, rounded down.
    assert_eq!(usage.daily(row(sums(0, -5, -1), 1, -1)), None);
    assert_eq!(usage.event(&event(sums(1, 12, 1_500))), None);
    assert_eq!(usage.event(&event(sums(1, 8, 1_499))), None);
    assert_eq!(
        usage.finish(day.start())[0].invariant,
        Invariant::DailyUsage,
        "the correction's event is missing"
    );
    assert_eq!(usage.event(&event(sums(0, -5, -1))), None);
    assert_eq!(usage.finish(day.start()), []);
    assert_eq!((usage.posted()[&day.month()], usage.posted_total()), (2, 1));

    let foreign_entries = EventRow { billed_month: Some(day.month().plus(9)), ..event(UsageSums::default()) };
    let drift = usage.event(&foreign_entries).unwrap();
    assert_eq!(
        (drift.invariant, drift.expected.as_str()),
        (Invariant::EventMonth, "a row billed in 2026-12")
    );

    let off = usage.daily(row(sums(0, 0, 1_000), 2, 0)).unwrap();
    assert_eq!(
        (off.invariant, off.expected.as_str(), off.found.as_str()),
        (Invariant::DailyPosted, "0.000000001", "0")
    );
    let drift = &usage.finish(day.start())[0];
    assert_eq!(drift.subject, "2026-03-09 p k m chat price 5");
    assert_eq!(drift.expected, "2 requests, 15 (8 cached) + 45 tokens, 0.000000002998");
    assert_eq!(drift.found, "2 requests, 15 (8 cached) + 45 tokens, 0.000000003998");
    assert_eq!(usage.finish(day.start().plus_ms(1)), [], "events of that day may be gone");
}

#[test]
fn credit_notes_leave_the_total() {
    let month = Month::from_unix_months(672);
    let mut usage = Usage { posted: [(month, 50), (month.plus(1), 7)].into(), ..Usage::default() };
    assert_eq!((usage.credited(), usage.posted_total()), (0, 57));
    // Notes posted a refund of 9 in January and a charge of 4 in February. They aren't on the invoices of
    // these months.
    usage.subtract_credit_notes(month, Nano::from_units(-9));
    usage.subtract_credit_notes(month.plus(1), Nano::from_units(4));
    assert_eq!(*usage.posted(), [(month, 59), (month.plus(1), 3)].into());
    assert_eq!((usage.credited(), usage.posted_total()), (-5, 57));
}

/// Returns a row with one completion token and three cached ones.
fn daily_row(caller: &str, model: &str, requests: i128, tokens: i128, pico: i128) -> DailyRow {
    let day = Day::parse("2026-03-09").unwrap();
    DailyRow {
        key: DailyKey {
            project_id: "p".into(),
            day,
            api_key_id: caller.into(),
            model: model.into(),
            price_version: 5,
            kind: "chat".into(),
        },
        month: day.month(),
        sums: UsageSums {
            requests,
            prompt_tokens: tokens,
            completion_tokens: 1,
            cached_prompt_tokens: 3,
            parts: Parts::default(),
            amount: Pico::from_units(pico),
        },
        posted: Pico::from_units(pico).floor_nano(),
    }
}

#[test]
fn totals_are_the_sums_of_daily_rows() {
    let mut usage = Usage::default();
    let rows =
        [daily_row("k", "m", 2, 20, 0), daily_row("k", "m", 0, -5, 0), daily_row("user_1", "m", 1, 3, 0)];
    for row in rows {
        assert_eq!(usage.daily(row), None);
    }
    let total = |id: &str, requests, tokens| TotalRow { subject_id: id.into(), requests, tokens };
    for row in [total("p", 3, 22), total("p", 2, 21), total("user_1", 1, 4), total("x", 0, 1)] {
        let drift = usage.clone().total(&row).unwrap();
        assert_eq!((drift.invariant, drift.subject), (Invariant::UsageTotal, row.subject_id));
    }
    assert_eq!(usage.total(&total("p", 3, 21)), None);
    let missing: Vec<_> = usage.missing_totals().iter().map(ToString::to_string).collect();
    let due = "all organizations  usage_total  k: expected 2 requests, 17 tokens, found 0 requests, 0 tokens";
    assert_eq!(missing, [due]);
}

#[test]
fn sums_are_those_of_daily_rows() {
    let day = Day::parse("2026-03-09").unwrap();
    let mut usage = Usage::default();
    let rows = [
        daily_row("k", "m", 2, 20, 700),
        daily_row("k", "n", 1, -5, -300),
        daily_row("user_1", "m", 1, 3, 50),
    ];
    for row in rows {
        assert_eq!(usage.daily(row), None);
    }
    let sum = |grouped_by: &str, id: &str, requests, prompt, completion, pico| SumRow {
        key: SumKey {
            project_id: "p".into(),
            grouped_by: grouped_by.into(),
            day,
            group_id: id.into(),
            kind: "chat".into(),
        },
        sums: UsageSums {
            requests,
            prompt_tokens: prompt,
            completion_tokens: completion,
            cached_prompt_tokens: 0,
            parts: Parts::default(),
            amount: Pico::from_units(pico),
        },
    };
    for wrong in [
        sum("model", "m", 4, 23, 2, 750),
        sum("model", "m", 3, 22, 2, 750),
        sum("model", "m", 3, 23, 1, 750),
        sum("model", "m", 3, 23, 2, 751),
        sum("caller", "m", 3, 23, 2, 750),
        sum("model", "k", 3, 15, 2, 400),
    ] {
        let drifts = usage.clone().sum(&wrong);
        assert_eq!(
            (drifts[0].invariant, &*drifts[0].subject),
            (Invariant::DailySums, &*wrong.key.to_string())
        );
    }
    for right in [
        sum("model", "m", 3, 23, 2, 750),
        sum("model", "n", 1, -5, 1, -300),
        sum("caller", "k", 3, 15, 2, 400),
    ] {
        assert_eq!(usage.sum(&right), []);
    }
    let missing: Vec<_> = usage.missing_sums().iter().map(ToString::to_string).collect();
    let due = "all organizations  daily_sums  2026-03-09 p caller user_1 chat: expected 1 requests, 3 + 1 tokens, \
               0.00000000005, found 0 requests, 0 + 0 tokens, 0";
    assert_eq!(missing, [due]);
}

#[test]
fn sums_are_compared_project_by_project() {
    let of = |project: &str| {
        let row = daily_row("k", "m", 1, 2, 0);
        DailyRow { key: DailyKey { project_id: project.into(), ..row.key }, ..row }
    };
    let mut usage = Usage::default();
    for project in ["b", "b2", "d", "e"] {
        assert_eq!(usage.daily(of(project)), None);
    }
    let sums = |project: &str| {
        let DailyRow { key, sums, .. } = of(project);
        key.sum_keys().map(|key| SumRow { key, sums: UsageSums { cached_prompt_tokens: 0, ..sums } })
    };
    let subjects = |drifts: Vec<Drift>| drifts.into_iter().map(|drift| drift.subject).collect::<Vec<_>>();
    let named = |project: &str| {
        let [model, caller] = sums(project).map(|row| row.key.to_string());
        [caller, model]
    };
    // Projects without daily rows come before, between and after others; `b2` and `e` have no sums, and `d` one.
    let [stray, ..] = sums("a");
    assert_eq!(subjects(usage.sum(&stray)), [stray.key.to_string()]);
    for row in sums("b") {
        assert_eq!(usage.sum(&row), []);
    }
    let [stray, ..] = sums("c");
    assert_eq!(subjects(usage.sum(&stray)), [&named("b2")[..], &[stray.key.to_string()]].concat());
    assert_eq!(usage.sum(&sums("d")[1]), []);
    let [stray, ..] = sums("f");
    let due = [&named("d")[1..], &named("e"), &[stray.key.to_string()]].concat();
    assert_eq!(subjects(usage.clone().sum(&stray)), due);
    assert_eq!(subjects(usage.missing_sums()), [&named("d")[1..], &named("e")].concat());
}

#[test]
fn event_amount_is_tokens_times_price() {
    use catalog::{ComponentPrices, PartPrices, Price};
    let day = Day::parse("2026-03-09").unwrap();
    let price = |effective_at, cached_prompt: Option<i128>| {
        let rates = ComponentPrices {
            prompt: Pico::from_units(2),
            cached_prompt: cached_prompt.map(Pico::from_units),
            completion: Pico::from_units(3),
            parts: PartPrices::default(),
        };
        Price::new(Time::from_unix_ms(effective_at), rates)
    };
    let (price, uncached) = (price(5, Some(1)), price(4, None));
    let book = PriceBook::new([("m".to_owned(), price), ("m".to_owned(), uncached)], []);
    let check_cached = |version: i64, tokens: i128, cached: i128, pico: i128, months: Option<Month>| {
        let key = DailyKey {
            project_id: "p".into(),
            day,
            api_key_id: "k".into(),
            model: "m".into(),
            price_version: version,
            kind: "chat".into(),
        };
        let sums = UsageSums {
            requests: 1,
            prompt_tokens: tokens,
            completion_tokens: tokens,
            cached_prompt_tokens: cached,
            parts: Parts::default(),
            amount: Pico::from_units(pico),
        };
        let (source, event_id) = ("s".into(), "e".into());
        let row = EventRow { source, event_id, key, sums, billed_month: months, rated_month: months };
        event(&row, &book).map(|drift| (drift.invariant, drift.subject, drift.expected))
    };
    let check = |version, tokens, pico, months| check_cached(version, tokens, 0, pico, months);
    let month = Some(day.month());
    assert!(check(5, 7, 35, month).is_none() && check(5, -7, -35, month).is_none());
    assert!(check(5, 7, 36, None).is_none() && check(6, 7, 35, None).is_none());
    let off = check(5, 7, 36, month).unwrap();
    assert_eq!(off, (Invariant::EventAmount, "s/e".into(), "0.000000000035".into()));
    assert_eq!(check(6, 7, 35, month).unwrap().0, Invariant::EventPrice);
    // 5 x 2 + 2 x 1 + 7 x 3; a correction; a price without one for cached tokens.
    assert!(check_cached(5, 7, 2, 33, month).is_none() && check_cached(5, -7, -2, -33, month).is_none());
    assert!(check_cached(4, 7, 2, 35, month).is_none());
    assert_eq!(check_cached(5, 7, 3, 33, month).unwrap().2, "0.000000000032");
}
