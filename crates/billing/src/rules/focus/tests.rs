use std::collections::BTreeMap;

use catalog::{
    Component, ComponentPrices, Conditions, DiscountVersion, Kind, PartPrices, Parts, Price, PriceBook,
    VolumeDiscount,
};
use kernel::clock::{Day, Month, Time};
use kernel::ids::OrganizationId;
use kernel::money::{Nano, Pico, Ppm};

use super::invoice_details::{Document, InvoiceDetails};
use super::usage::{NamedUsage, of_row, on_credit_notes};
use super::*;
use crate::rules::invoicing::{self, BilledUsage, Item, ItemKind};

const JANUARY: Month = Month::from_unix_months(672);
const FEBRUARY: Month = Month::from_unix_months(673);
const ORGANIZATION: &str = "org_01kfz3v9xee8tb2m6h0q5w7r4n";

fn pico(text: &str) -> Pico {
    Pico::parse(text).unwrap()
}

fn account(month: Month) -> Account {
    Account {
        organization_id: OrganizationId::parse(ORGANIZATION).unwrap(),
        organization_name: "=Acme".into(),
        currency: "USD".into(),
        month,
        provider: "Acme AI".into(),
        issuer: "Acme AI, Inc.".into(),
    }
}

/// A model with a price of its own for cached tokens, one without, and 5 % less above 100 tokens.
fn book() -> PriceBook {
    let price = |cached: Option<&str>| {
        let rates = ComponentPrices {
            prompt: pico("0.000002"),
            cached_prompt: cached.map(pico),
            completion: pico("0.0000000015"),
            parts: PartPrices::default(),
        };
        Price::new(Time::from_unix_ms(0), rates)
    };
    let prices = [("chat-1".to_owned(), price(Some("0.0000005"))), ("embed-1".to_owned(), price(None))];
    let tiers = vec![VolumeDiscount { threshold: 100, discount: Ppm::from_units(50_000) }];
    PriceBook::new(prices, [DiscountVersion { effective_at: Time::from_unix_ms(0), tiers }])
}

fn row(model: &str, day: &str, tokens: (i64, i64, i64), amount: &str) -> NamedUsage {
    let kind = if model == "embed-1" { Kind::Embeddings } else { Kind::Chat };
    let (prompt_tokens, cached_prompt_tokens, completion_tokens) = tokens;
    NamedUsage {
        project: Named { id: "proj_1".into(), name: Some("Site".into()) },
        caller: Caller {
            named: Named { id: "key_1".into(), name: Some("+prod, \"A\"".into()) },
            is_key: true,
        },
        used: BilledUsage {
            model: model.into(),
            kind,
            price_version: 0,
            day: Day::parse(day).unwrap(),
            prompt_tokens,
            completion_tokens,
            cached_prompt_tokens,
            parts: Parts::default(),
            amount: pico(amount),
            posted: Nano::ZERO,
        },
    }
}

fn lines(charges: &[Charge], month: Month) -> String {
    let mut text = String::new();
    charges.iter().for_each(|charge| charge.add_to(&mut text, &account(month), Version::V1_2));
    text
}

/// Returns the kind, the quantity and price, the cost and the document of each charge.
fn short(charges: &[Charge]) -> Vec<String> {
    let line = |charge: &Charge| {
        let metered = charge.metered.as_ref();
        let metered = metered.map(|m| format!("{} x {} = ", m.quantity, m.unit_price)).unwrap_or_default();
        let class = if charge.is_correction { ", correction" } else { "" };
        let document = charge.document.as_deref().unwrap_or("no document");
        format!("{}: {metered}{}, {document}{class}", charge.description, charge.cost)
    };
    charges.iter().map(line).collect()
}

fn sum(charges: &[Charge]) -> String {
    Pico::from_units(charges.iter().map(|charge| charge.cost.units()).sum()).to_string()
}

#[test]
fn row_has_a_line_for_each_kind_of_tokens() {
    // 600 x 0.000002 = 0.0012, 400 x 0.0000005 = 0.0002, 3 x 0.0000000015 = 0.0000000045
    let row = row("chat-1", "2026-01-31", (1_000, 400, 3), "0.0014000045");
    let charges = of_row(&row, JANUARY, Some("invoice_1"), &book()).unwrap();
    let line = |cost: &str, count: &str, price: &str, kind: &str, meter: &str| {
        format!(
            "{cost},{ORGANIZATION},'=Acme,Organization,USD,2026-02-01T00:00:00Z,2026-01-01T00:00:00Z,Usage,,\
             \"chat-1, {}\",Usage-Based,2026-02-01T00:00:00Z,2026-01-31T00:00:00Z,,{count}.0,Tokens,{cost},{price},\
             {cost},invoice_1,\"Acme AI, Inc.\",{cost},{price},Standard,{count}.0,Tokens,Acme AI,Acme AI,key_1,\
             \"'+prod, \"\"A\"\"\",API Key,AI and Machine Learning,Model Inference,Generative AI,chat-1/{kind},{meter},\
             \"{{\"\"x_EffectiveAt\"\":\"\"1970-01-01\"\",\"\"x_Model\"\":\"\"chat-1\"\",\
             \"\"x_ModelKind\"\":\"\"chat\"\",\"\"x_TokenKind\"\":\"\"{kind}\"\"}}\",chat-1/{kind}@1970-01-01,\
             proj_1,Site,Project,chat-1\r\n",
            meter.to_lowercase()
        )
    };
    let due = [
        line("0.0012", "600", "0.000002", "prompt", "Prompt tokens"),
        line("0.0002", "400", "0.0000005", "cached_prompt", "Cached prompt tokens"),
        line("0.0000000045", "3", "0.0000000015", "completion", "Completion tokens"),
    ];
    assert_eq!(lines(&charges, JANUARY), due.concat());
    assert_eq!(sum(&charges), "0.0014000045");
    let whole = super::decimal(Pico::from_units(-2_000_000_000_000)).quoted();
    assert_eq!((whole.as_str(), decimal(0).quoted().as_str()), ("-2.0", "0.0"));
    assert_eq!(Form::default().header().trim_end().split(',').count(), 42);
}

/// Version 1.3 renames the providers; 1.4 drops the old names and has the line of the document.
#[test]
fn later_versions_differ_in_a_few_columns() {
    let names = |version| {
        Form::charges(version).header().trim_end().split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let beyond = |version, other: Version| {
        let known = names(other);
        names(version).into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(beyond(Version::V1_3, Version::V1_2), ["HostProviderName", "ServiceProviderName"]);
    assert!(beyond(Version::V1_2, Version::V1_3).is_empty());
    assert_eq!(beyond(Version::V1_4, Version::V1_3), ["InvoiceDetailId"]);
    assert_eq!(beyond(Version::V1_3, Version::V1_4), ["ProviderName", "PublisherName"]);
    for version in Version::ALL {
        let names = names(*version);
        let (ours, theirs): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.starts_with("x_"));
        assert!(
            theirs.is_sorted() && names.ends_with(&ours.into_iter().cloned().collect::<Vec<_>>()),
            "{names:?}"
        );
    }
    for dataset in [Dataset::InvoiceDetail, Dataset::BillingPeriod] {
        assert_eq!(Form::new(Version::V1_3, dataset), None);
        assert!(Form::new(Version::V1_4, dataset).is_some());
    }
}

/// Keys and days are summed, months of use and prices aren't; usage that a credit note took out of an invoice
/// cancels itself.
#[test]
fn line_of_a_document_is_the_sum_of_its_charges() {
    let mut details = InvoiceDetails::new(FEBRUARY);
    let mut add = |row: &NamedUsage| {
        for charge in of_row(row, FEBRUARY, Some("invoice_1"), &book()).unwrap() {
            details.add(charge).unwrap();
        }
    };
    add(&row("embed-1", "2026-02-01", (10, 0, 0), "0.00002"));
    add(&row("embed-1", "2026-02-03", (5, 0, 0), "0.00001"));
    add(&row("embed-1", "2026-01-31", (7, 0, 0), "0.000014"));
    add(&row("chat-1", "2026-01-31", (-5, 0, 0), "-0.00001"));
    let taken_out = row("chat-1", "2026-01-31", (-5, 0, 0), "-0.00001").used;
    for charge in on_credit_notes(&taken_out, FEBRUARY, Some("invoice_1"), &book()).unwrap() {
        details.add(charge).unwrap();
    }
    let issued_at = Time::parse("2026-03-02T00:00:05.678Z").unwrap();
    let document = Document { issued_at, voided_at: None, reference: None };
    let lines = details.lines(&account(FEBRUARY), &BTreeMap::from([("invoice_1".to_owned(), document)]));
    let line = |cost: &str, text: &str, month: &str, id: &str, count: &str| {
        format!(
            "{cost},{ORGANIZATION},USD,2026-03-01T00:00:00Z,2026-02-01T00:00:00Z,Usage,2026-03-02T00:00:05Z,\"{text}\",\
             \"{{\"\"SkuId\"\":\"\"embed-1/input\"\",\"\"SkuMeter\"\":\"\"Input tokens\"\",\
             \"\"SkuPriceId\"\":\"\"embed-1/input@1970-01-01\"\",\"\"x_MonthOfUse\"\":\"\"{month}\"\"}}\",\
             {id},2026-03-02T00:00:05Z,invoice_1,2026-03-02T00:00:05Z,Issued,\"Acme AI, Inc.\",,Due on receipt,invoice_1,\
             0.000002,{count}.0,Tokens\r\n"
        )
    };
    let due = [
        line(
            "0.000014",
            "Late usage of 2026-01: embed-1, input tokens",
            "2026-01",
            "2026-01/embed-1/input@1970-01-01",
            "7",
        ),
        line("0.00003", "embed-1, input tokens", "2026-02", "embed-1/input@1970-01-01", "15"),
    ];
    assert_eq!(lines, due.concat());
}

/// Searches aren't counted as tokens, and a price with conditions names them.
#[test]
fn components_have_units_and_conditions() {
    let parts = PartPrices::default()
        .with(Component::Search, Some(pico("0.01")))
        .with(Component::Reasoning, Some(pico("0.00002")));
    let prices =
        ComponentPrices { prompt: pico("0.000002"), cached_prompt: None, completion: pico("0.00001"), parts };
    let conditions = Conditions::parse("tier:flex above:100").unwrap();
    let price = Price::conditional(Time::from_unix_ms(0), conditions, prices);
    // 200 x 0.000002 + 30 x 0.00001 + 70 x 0.00002 + 3 x 0.01
    let mut row = row("chat-1", "2026-01-31", (200, 0, 100), "0.0321");
    row.used.parts = Parts::default().with(Component::Search, 3).with(Component::Reasoning, 70);
    row.used.price_version = price.version;
    let book = PriceBook::new([("chat-1".to_owned(), price)], []);
    let charges = of_row(&row, JANUARY, Some("invoice_1"), &book).unwrap();
    assert_eq!(
        short(&charges),
        [
            "chat-1, prompt tokens, flex, above 100 prompt tokens: 200 x 0.000002 = 0.0004, invoice_1",
            "chat-1, completion tokens, flex, above 100 prompt tokens: 30 x 0.00001 = 0.0003, invoice_1",
            "chat-1, reasoning tokens, flex, above 100 prompt tokens: 70 x 0.00002 = 0.0014, invoice_1",
            "chat-1, searches, flex, above 100 prompt tokens: 3 x 0.01 = 0.03, invoice_1",
        ]
    );
    let units: Vec<_> = charges.iter().filter_map(|charge| charge.metered.as_ref()).collect();
    let units =
        units.iter().map(|metered| (metered.consumed_unit, metered.quantity_unit, metered.sku_id.as_str()));
    assert_eq!(
        units.collect::<Vec<_>>(),
        [
            ("Tokens", "Tokens", "chat-1/prompt"),
            ("Tokens", "Tokens", "chat-1/completion"),
            ("Tokens", "Tokens", "chat-1/reasoning"),
            ("Searches", "Searches", "chat-1/search"),
        ]
    );
    let price = charges[3].metered.as_ref().and_then(|metered| metered.price.as_ref()).unwrap();
    assert_eq!(price.id, "chat-1/search@1970-01-01 (flex, above 100 prompt tokens)");
    assert_eq!(
        price.details,
        r#"{"x_Conditions":"flex, above 100 prompt tokens","x_EffectiveAt":"1970-01-01","x_Model":"chat-1","x_ModelKind":"chat","x_TokenKind":"search"}"#
    );
}

#[test]
fn usage_of_an_earlier_month_is_a_correction() {
    let of = |row: &NamedUsage| short(&of_row(row, FEBRUARY, None, &book()).unwrap());
    assert_eq!(
        of(&row("embed-1", "2026-02-01", (10, 5, 0), "0.00002")),
        ["embed-1, input tokens: 10 x 0.000002 = 0.00002, no document"],
        "without a separate price, cached tokens are priced like others"
    );
    assert_eq!(
        of(&row("embed-1", "2026-01-31", (10, 0, 0), "0.00002")),
        ["Late usage of 2026-01: embed-1, input tokens: 10 x 0.000002 = 0.00002, no document, correction"]
    );
    // Cached tokens were taken back; other tokens are late.
    assert_eq!(
        of(&row("chat-1", "2026-01-31", (5, -5, 0), "0.0000175")),
        [
            "Late usage of 2026-01: chat-1, prompt tokens: 10 x 0.000002 = 0.00002, no document, correction",
            "Correction of 2026-01: chat-1, cached prompt tokens: -5 x 0.0000005 = -0.0000025, no document, correction",
        ]
    );
    assert_eq!(of(&row("chat-1", "2026-01-31", (0, 0, 0), "0")), [""; 0]);
}

#[test]
fn usage_without_a_price_is_one_unit() {
    let of = |amount: &str| of_row(&row("gone-1", "2026-01-05", (7, 0, 4), amount), JANUARY, None, &book());
    let due =
        |text: &str| vec![format!("gone-1, usage at a price that has left the catalog: {text}, no document")];
    assert_eq!(short(&of("0.5").unwrap()), due("1 x 0.5 = 0.5"));
    assert_eq!(short(&of("-0.5").unwrap()), due("-1 x 0.5 = -0.5"), "a unit price is never negative");
    let metered = of("0.5").unwrap().remove(0).metered.unwrap();
    assert_eq!((metered.consumed, metered.quantity_unit, &*metered.sku_id), (11, "Units", "gone-1/usage"));
}

#[test]
fn people_and_deleted_things_have_ids() {
    let mut row = row("embed-1", "2026-01-05", (1, 0, 0), "0.000002");
    row.project = Named { id: "proj_1".into(), name: None };
    row.caller = Caller { named: Named { id: "user_1".into(), name: None }, is_key: false };
    let text = lines(&of_row(&row, JANUARY, None, &book()).unwrap(), JANUARY);
    assert!(text.contains(",user_1,,User,"), "{text}");
    assert!(text.ends_with(",proj_1,proj_1,Project,embed-1\r\n"), "{text}");
}

#[test]
fn documents_have_the_rest_of_an_invoice() {
    // January had 100 tokens; 50 more are reported late, and 150 are used in February. Above 100, 5 % less:
    // January 50 x 0.000002 x 5 % = 0.000005, February 50 x 0.000002 x 5 % = 0.000005.
    let late = row("embed-1", "2026-01-31", (50, 0, 0), "0.0001");
    let now = row("embed-1", "2026-02-10", (150, 0, 0), "0.0003");
    let before = row("embed-1", "2026-01-10", (100, 0, 0), "0.0002");
    let used = [late, now].map(|row| BilledUsage { posted: row.used.amount.floor_nano(), ..row.used });
    let mut bill = invoicing::bill(FEBRUARY, &used, &[before.used], &book()).unwrap();
    // A debt, charged by an earlier version.
    let debt = Pico::from_units(7_000);
    bill.items.push(Item::single(ItemKind::CarriedOver, "Carried over".to_owned(), debt));
    bill.amount = bill.amount.checked_add(Nano::from_units(7)).unwrap();
    let of = |item: &Item| documents::of_invoice(item, FEBRUARY, Some("invoice_2"));
    let charges: Vec<_> = bill.items.iter().filter_map(of).collect();
    assert_eq!(
        short(&charges),
        [
            "Volume discount of 2026-01: embed-1, input tokens: -0.000005, invoice_2, correction",
            "Volume discount: embed-1, input tokens: -0.000005, invoice_2",
            "Carried over: 0.000000007, invoice_2, correction",
        ]
    );
    let periods = charges.iter().map(|c| format!("{} {} {:?}", c.start, c.end, c.model.as_deref()));
    assert_eq!(
        periods.collect::<Vec<_>>(),
        [
            "2026-01-01 2026-02-01 Some(\"embed-1\")",
            "2026-02-01 2026-03-01 Some(\"embed-1\")",
            "2026-02-01 2026-03-01 None",
        ]
    );
    assert_eq!(charges[0].file_day(FEBRUARY).to_string(), "2026-02-01");
    // 0.0001 + 0.0003 - 0.00001 + 0.000000007
    assert_eq!(bill.amount.to_string(), "0.000390007");
    let text = lines(&charges[1..2], FEBRUARY);
    assert!(text.contains(",Credit,,\"Volume discount: embed-1, input tokens\",One-Time,"), "{text}");
    assert!(
        text.contains("-0.000005,,-0.000005,invoice_2,\"Acme AI, Inc.\",-0.000005,,,,,Acme AI,"),
        "{text}"
    );
}

#[test]
fn rounding_is_an_adjustment() {
    let row = row("chat-1", "2026-01-31", (0, 0, 3), "0.0000000045");
    let used = [BilledUsage { posted: row.used.amount.floor_nano(), ..row.used.clone() }];
    let bill = invoicing::bill(JANUARY, &used, &[], &book()).unwrap();
    let of = |item: &Item| documents::of_invoice(item, JANUARY, None);
    let mut charges: Vec<_> = bill.items.iter().filter_map(of).collect();
    assert_eq!(short(&charges), ["Rounding: -0.0000000005, no document"]);
    assert_eq!(charges[0].category, Category::Adjustment);
    charges.extend(of_row(&row, JANUARY, None, &book()).unwrap());
    assert_eq!(sum(&charges), "0.000000004");
}

#[test]
fn credit_notes_are_corrections() {
    // Of 150 tokens 100 are taken back: -100 x 0.000002, and the discount on 50 of them.
    let back = |posted| BilledUsage { posted, ..row("embed-1", "2026-01-10", (-100, 0, 0), "-0.0002").used };
    let credited = back(Nano::from_units(-200_000));
    let before = row("embed-1", "2026-01-10", (150, 0, 0), "0.0003");
    let bill = invoicing::credit_note(std::slice::from_ref(&credited), &[before.used], &book()).unwrap();
    let of = |item: &Item| documents::of_credit_note(item, JANUARY, "credit_note_1");
    let charges: Vec<_> = bill.items.iter().map(of).collect();
    assert_eq!(
        short(&charges),
        [
            "Correction of 2026-01: embed-1, input tokens: -100 x 0.000002 = -0.0002, credit_note_1, correction",
            "Volume discount of 2026-01 taken back: embed-1, input tokens: 0.000005, credit_note_1, correction",
        ]
    );
    assert_eq!(
        charges[0].metered.as_ref().map(|m| (&*m.sku_id, m.price.is_none())),
        Some(("embed-1/input", true))
    );
    assert_eq!((sum(&charges), bill.amount.to_string()), ("-0.000195".into(), "-0.000195".into()));
    // The rows of February have the correction, too, by key; its invoice doesn't.
    let taken_out = on_credit_notes(&credited, FEBRUARY, Some("invoice_2"), &book()).unwrap();
    assert_eq!(
        short(&taken_out),
        ["Correction of 2026-01 that isn't on this invoice: embed-1, input tokens: \
          100 x 0.000002 = 0.0002, invoice_2, correction"]
    );
    let cached = Item {
        kind: ItemKind::Correction,
        description: "Correction of 2026-01: chat-1, cached prompt tokens, price from 2026-01-05".into(),
        quantity: -5,
        unit_price: pico("0.0000005"),
        amount: pico("-0.0000025"),
    };
    let metered = of(&cached).metered.unwrap();
    assert_eq!((&*metered.sku_id, &*metered.meter), ("chat-1/cached_prompt", "Cached prompt tokens"));
    let gone = "Correction of 2026-01: chat-1, usage at a price that has left the catalog";
    let gone = of(&Item::single(ItemKind::Correction, gone.into(), pico("-0.5")));
    assert_eq!((gone.metered, gone.model.as_deref()), (None, Some("chat-1")));
}

#[test]
fn void_invoice_is_cancelled() {
    let charge = documents::of_void_invoice(7, "invoice_7", JANUARY, pico("0.39"));
    assert_eq!(short(&[charge]), ["Invoice 7 of 2026-01 is void: -0.39, invoice_7, correction"]);
}
