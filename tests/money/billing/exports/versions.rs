//! FOCUS 1.3 and 1.4: their columns, checked against the requirements of the specification, and the datasets
//! of 1.4.

use serde_json::json;

use super::*;
use support::transcript::with_configured_books;

/// The requirement level of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    /// The column's condition applies to the service, or the column is recommended and its values are
    /// available.
    Here,
    /// The condition never applies. The service has no commitments, contracts, regions, zones, tags, shared
    /// costs, other currencies or purchase order numbers.
    Never,
}
use Need::{Always, Here, Never};

/// The format of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Decimal,
    Text,
    Instant,
    Json,
}
use Form::{Decimal, Instant, Json, Text};

/// A column: its name, whether it is required, whether it may be null, its format, and its allowed values. An
/// empty list of values allows all.
type Requirement = (&'static str, Need, bool, Form, &'static [&'static str]);

/// The units of consumed quantities.
const UNITS: &[&str] = &["Tokens", "Requests", "Images", "Seconds", "Characters", "Searches"];
/// The units of prices: the same, and `Units` for charges whose price is unknown.
const PRICING_UNITS: &[&str] =
    &["Tokens", "Requests", "Images", "Seconds", "Characters", "Searches", "Units"];

const CATEGORIES: &[&str] = &["Usage", "Purchase", "Tax", "Credit", "Adjustment"];

/// The columns of Cost and Usage that 1.2, 1.3 and 1.4 share. Source: the repository
/// FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, tag v1.2, "Content constraints" of each file in
/// `specification/columns`. Later changes are from the change logs of v1.3 and v1.4: since 1.4, `InvoiceId`
/// is required for providers that issue invoices.
const SHARED: &[Requirement] = &[
    ("AvailabilityZone", Never, true, Text, &[]),
    ("BilledCost", Always, false, Decimal, &[]),
    ("BillingAccountId", Always, false, Text, &[]),
    ("BillingAccountName", Always, true, Text, &[]),
    ("BillingAccountType", Here, false, Text, &[]),
    ("BillingCurrency", Always, false, Text, &["USD"]),
    ("BillingPeriodEnd", Always, false, Instant, &[]),
    ("BillingPeriodStart", Always, false, Instant, &[]),
    ("CapacityReservationId", Never, true, Text, &[]),
    ("CapacityReservationStatus", Never, true, Text, &[]),
    ("ChargeCategory", Always, false, Text, CATEGORIES),
    ("ChargeClass", Always, true, Text, &["Correction"]),
    ("ChargeDescription", Always, true, Text, &[]),
    ("ChargeFrequency", Here, false, Text, &["One-Time", "Recurring", "Usage-Based"]),
    ("ChargePeriodEnd", Always, false, Instant, &[]),
    ("ChargePeriodStart", Always, false, Instant, &[]),
    ("CommitmentDiscountCategory", Never, true, Text, &[]),
    ("CommitmentDiscountId", Never, true, Text, &[]),
    ("CommitmentDiscountName", Never, true, Text, &[]),
    ("CommitmentDiscountQuantity", Never, true, Decimal, &[]),
    // The column is always null, but the validator of 1.2 requires it.
    ("CommitmentDiscountStatus", Here, true, Text, &[]),
    ("CommitmentDiscountType", Never, true, Text, &[]),
    ("CommitmentDiscountUnit", Never, true, Text, &[]),
    ("ConsumedQuantity", Here, true, Decimal, &[]),
    ("ConsumedUnit", Here, true, Text, UNITS),
    ("ContractedCost", Always, false, Decimal, &[]),
    ("ContractedUnitPrice", Here, true, Decimal, &[]),
    ("EffectiveCost", Always, false, Decimal, &[]),
    ("InvoiceId", Here, true, Text, &[]),
    ("InvoiceIssuerName", Always, false, Text, &[]),
    ("ListCost", Always, false, Decimal, &[]),
    ("ListUnitPrice", Here, true, Decimal, &[]),
    ("PricingCategory", Here, true, Text, &["Standard", "Dynamic", "Committed", "Other"]),
    ("PricingCurrency", Never, true, Text, &[]),
    ("PricingCurrencyContractedUnitPrice", Never, true, Decimal, &[]),
    ("PricingCurrencyEffectiveCost", Never, true, Decimal, &[]),
    ("PricingCurrencyListUnitPrice", Never, true, Decimal, &[]),
    ("PricingQuantity", Always, true, Decimal, &[]),
    ("PricingUnit", Always, true, Text, PRICING_UNITS),
    ("RegionId", Never, true, Text, &[]),
    ("RegionName", Never, true, Text, &[]),
    ("ResourceId", Here, true, Text, &[]),
    ("ResourceName", Here, true, Text, &[]),
    ("ResourceType", Here, true, Text, &[]),
    ("ServiceCategory", Always, false, Text, &["AI and Machine Learning"]),
    ("ServiceName", Always, false, Text, &[]),
    ("ServiceSubcategory", Here, false, Text, &["Generative AI"]),
    ("SkuId", Here, true, Text, &[]),
    ("SkuMeter", Here, true, Text, &[]),
    ("SkuPriceDetails", Here, true, Json, &[]),
    ("SkuPriceId", Here, true, Text, &[]),
    ("SubAccountId", Here, true, Text, &[]),
    ("SubAccountName", Here, true, Text, &[]),
    ("SubAccountType", Here, true, Text, &[]),
    ("Tags", Never, true, Json, &[]),
];

/// The columns that 1.3 adds. It deprecates 1.2's columns for providers, but keeps them. Source: the same
/// repository, `specification/datasets/cost_and_usage/columns` of v1.3.
const OF_1_3: &[Requirement] = &[
    ("AllocatedMethodDetails", Never, true, Json, &[]),
    ("AllocatedMethodId", Never, true, Text, &[]),
    ("AllocatedResourceId", Never, true, Text, &[]),
    ("AllocatedResourceName", Never, true, Text, &[]),
    ("AllocatedTags", Never, true, Json, &[]),
    ("ContractApplied", Never, true, Json, &[]),
    ("HostProviderName", Always, true, Text, &[]),
    ("ProviderName", Always, false, Text, &[]),
    ("PublisherName", Always, false, Text, &[]),
    ("ServiceProviderName", Always, false, Text, &[]),
];

/// The columns of 1.4 in addition to the shared ones. Source: the same folder of v1.4.
const OF_1_4: &[Requirement] = &[
    ("AllocatedMethodDetails", Never, true, Json, &[]),
    ("AllocatedMethodId", Never, true, Text, &[]),
    ("AllocatedResourceId", Never, true, Text, &[]),
    ("AllocatedResourceName", Never, true, Text, &[]),
    ("AllocatedTags", Never, true, Json, &[]),
    ("CommitmentProgramEligibilityDetails", Never, true, Json, &[]),
    ("ContractApplied", Never, true, Json, &[]),
    ("HostProviderName", Always, true, Text, &[]),
    ("InvoiceDetailId", Here, true, Text, &[]),
    ("ServiceProviderName", Always, false, Text, &[]),
];

/// The dataset Invoice Detail. Source: `specification/datasets/invoice_detail` of v1.4.
const INVOICE_DETAIL: &[Requirement] = &[
    ("BilledCost", Always, false, Decimal, &[]),
    ("BillingAccountId", Always, false, Text, &[]),
    ("BillingCurrency", Always, false, Text, &["USD"]),
    ("BillingPeriodEnd", Always, false, Instant, &[]),
    ("BillingPeriodStart", Always, false, Instant, &[]),
    ("ChargeCategory", Always, false, Text, CATEGORIES),
    ("InvoiceDetailCreated", Always, false, Instant, &[]),
    ("InvoiceDetailDescription", Always, true, Text, &[]),
    ("InvoiceDetailGrain", Always, true, Json, &[]),
    ("InvoiceDetailId", Always, false, Text, &[]),
    ("InvoiceDetailLastUpdated", Always, false, Instant, &[]),
    ("InvoiceId", Always, false, Text, &[]),
    ("InvoiceIssueDate", Always, true, Instant, &[]),
    ("InvoiceIssueStatus", Always, false, Text, &["Open", "Issued", "Voided"]),
    ("InvoiceIssuerName", Always, false, Text, &[]),
    ("PaymentCurrency", Never, false, Text, &[]),
    ("PaymentCurrencyBilledCost", Never, false, Decimal, &[]),
    ("PaymentCurrencyInvoiceDetailId", Never, false, Text, &[]),
    ("PaymentDueDate", Always, true, Instant, &[]),
    ("PaymentTerms", Always, false, Text, &[]),
    ("PurchaseOrderNumber", Never, true, Text, &[]),
    ("ReferenceInvoiceId", Always, false, Text, &[]),
];

/// The dataset Billing Period. Source: `specification/datasets/billing_period` of v1.4.
const BILLING_PERIOD: &[Requirement] = &[
    ("BillingPeriodCreated", Always, false, Instant, &[]),
    ("BillingPeriodEnd", Always, false, Instant, &[]),
    ("BillingPeriodLastUpdated", Always, false, Instant, &[]),
    ("BillingPeriodStart", Always, false, Instant, &[]),
    ("BillingPeriodStatus", Always, false, Text, &["Open", "Closed"]),
    ("InvoiceIssuerName", Always, false, Text, &[]),
];

/// Returns `true` if a value has the format that the specification's attributes define: numbers have digits,
/// at most one decimal point and no exponent, times are in UTC as `YYYY-MM-DDTHH:mm:ssZ`, and JSON is an
/// object.
fn is_in_form(value: &str, form: Form) -> bool {
    match form {
        Decimal => {
            let digits = value.strip_prefix('-').unwrap_or(value);
            let parts: Vec<_> = digits.split('.').collect();
            parts.len() <= 2
                && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        }
        Text => value.trim() == value,
        Instant => {
            let shape: String = value.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            shape == "0000-00-00T00:00:00Z"
        }
        Json => serde_json::from_str::<serde_json::Value>(value).is_ok_and(|value| value.is_object()),
    }
}

/// Checks the columns and all values of a file against the requirements.
fn check(file: &str, requirements: &[&[Requirement]]) {
    let header = file.lines().next().unwrap();
    let names: Vec<&str> = header.split(',').collect();
    let all: Vec<&Requirement> = requirements.iter().copied().flatten().collect();
    for (name, need, ..) in &all {
        assert_eq!(names.contains(name), *need != Never, "{name}");
    }
    for name in names.iter().filter(|name| !name.starts_with("x_")) {
        assert!(
            all.iter().any(|requirement| requirement.0 == *name),
            "{name} isn't a column of this version"
        );
    }
    for row in csv::rows(file) {
        for (name, need, may_be_null, form, values) in &all {
            let Some(value) = row.get(*name).filter(|_| *need != Never) else { continue };
            if value.is_empty() {
                assert!(may_be_null, "{name} is null: {row:?}");
                continue;
            }
            assert!(is_in_form(value, *form), "{name} = {value}: {form:?}");
            assert!(values.is_empty() || values.contains(&value.as_str()), "{name} = {value}");
        }
    }
}

/// Returns the exported file of a month. `rest` is the rest of the query, with the version and the dataset.
async fn get(books: &Books<'_>, month: &str, rest: &str) -> String {
    let answer = ask(books, &format!("?format=focus&month={month}&{rest}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

#[on_each_database]
fn columns_and_values_are_those_of_the_specification(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        books.set_time("2026-03-05T00:00:00Z");
        books.void_invoice(2).await;
        for month in ["2026-01", "2026-02", "2026-03"] {
            assert_eq!(
                get(books, month, "version=1.2").await,
                file(books, month).await,
                "1.2 is the default"
            );
            check(&get(books, month, "version=1.3").await, &[SHARED, OF_1_3]);
            check(&get(books, month, "version=1.4").await, &[SHARED, OF_1_4]);
            check(&get(books, month, "version=1.4&dataset=invoice_detail").await, &[INVOICE_DETAIL]);
            check(&get(books, month, "version=1.4&dataset=billing_period").await, &[BILLING_PERIOD]);
        }
        for row in csv::rows(&get(books, "2026-01", "version=1.4").await) {
            let names =
                ["ServiceProviderName", "HostProviderName", "InvoiceIssuerName"].map(|name| &*row[name]);
            assert_eq!(names, ["tollkeeper"; 3]);
        }
    });
}

/// The usage of components meets the same requirements, with and without conditions on prices.
#[on_each_database]
fn components_meet_the_requirements(database: Database) {
    let catalog = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/components.toml");
    with_configured_books(database, &[catalog], START, async |books| {
        let parts = json!({"cache_write_5m": 50, "audio_prompt": 10, "reasoning": 20, "search": 2});
        books.use_parts("multi", [1_000, 200, 500], &parts).await;
        let parts =
            json!({"image_prompt": 40, "audio_completion": 30, "image": 2, "second": 7, "character": 1_000});
        books.use_parts("voice", [100, 0, 50], &parts).await;
        books.use_parts("multi", [300_000, 0, 100], &json!({})).await;
        // 2026-01-17 is a Saturday.
        books.set_time("2026-01-17T09:00:00Z");
        books.use_parts("multi", [1_000, 0, 100], &json!({})).await;
        for is_closed in [false, true] {
            if is_closed {
                books.set_time(CLOSES);
                books.run_scheduler().await;
            }
            let file = get(books, "2026-01", "version=1.4").await;
            check(&file, &[SHARED, OF_1_4]);
            check(&get(books, "2026-01", "version=1.3").await, &[SHARED, OF_1_3]);
            check(&get(books, "2026-01", "version=1.4&dataset=invoice_detail").await, &[INVOICE_DETAIL]);
            let rows = csv::rows(&file);
            for unit in UNITS {
                assert!(rows.iter().any(|row| row["ConsumedUnit"] == *unit), "{unit}: {file}");
            }
            for conditions in ["above 200000 prompt tokens", "sat 00:00 to mon 00:00 UTC"] {
                let details = format!("\"x_Conditions\":\"{conditions}\"");
                assert!(
                    rows.iter().any(|row| row["SkuPriceDetails"].contains(&details)),
                    "{details}: {file}"
                );
            }
        }
    });
}

/// Returns the content of each line of the dataset Invoice Detail, sorted: its document, the document that it
/// refers to, its state, its text and its amount.
async fn details(books: &Books<'_>, month: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for row in csv::rows(&get(books, month, "version=1.4&dataset=invoice_detail").await) {
        let times = match &*row["x_PricingQuantity"] {
            "" => String::new(),
            quantity => format!("{quantity} x {} = ", row["x_ListUnitPrice"]),
        };
        let about = if row["ReferenceInvoiceId"] == row["InvoiceId"] {
            String::new()
        } else {
            format!(" about {}", document(books, &row["ReferenceInvoiceId"]).await)
        };
        lines.push(format!(
            "{}{about}, {} {}: {}: {times}{}",
            document(books, &row["InvoiceId"]).await,
            row["InvoiceIssueStatus"],
            &row["InvoiceIssueDate"][..10],
            row["InvoiceDetailDescription"],
            row["BilledCost"],
        ));
    }
    lines.sort();
    lines
}

/// The invoice of January is 2.976935002: 0.002 + 0.00006 + 3 + 0.0000000021 - 0.025125 - 0.0000000001.
const LINES_OF_JANUARY: [&str; 6] = [
    "invoice 1, Issued 2026-02-02: Rounding: -0.0000000001",
    "invoice 1, Issued 2026-02-02: Volume discount: chat-a, prompt tokens: -0.025125",
    "invoice 1, Issued 2026-02-02: chat-a, completion tokens: 10.0 x 0.000006 = 0.00006",
    "invoice 1, Issued 2026-02-02: chat-a, prompt tokens: 1000.0 x 0.000002 = 0.002",
    "invoice 1, Issued 2026-02-02: chat-a, prompt tokens: 1200000.0 x 0.0000025 = 3.0",
    "invoice 1, Issued 2026-02-02: embed-e, input tokens: 3.0 x 0.0000000007 = 0.0000000021",
];

/// Returns the lines of February, with the state of its invoice. The invoice is 0.00975: 0.01 - 0.0005 +
/// 0.00025. The refund is only on the credit note: 0.001 less the lost discount of 0.0000625.
fn lines_of_february(state: &str) -> [String; 5] {
    [
        "a credit note about invoice 1, Issued 2026-02-05: Correction of 2026-01: chat-a, prompt tokens: -500.0 x 0.000002 = -0.001"
            .to_owned(),
        "a credit note about invoice 1, Issued 2026-02-05: Volume discount of 2026-01 taken back: chat-a, prompt tokens: 0.0000625"
            .to_owned(),
        format!("invoice 2, {state} 2026-03-02: Late usage of 2026-01: chat-a, prompt tokens: 4000.0 x 0.0000025 = 0.01"),
        format!("invoice 2, {state} 2026-03-02: Volume discount of 2026-01: chat-a, prompt tokens: -0.0005"),
        format!("invoice 2, {state} 2026-03-02: chat-a, prompt tokens: 100.0 x 0.0000025 = 0.00025"),
    ]
}

#[on_each_database]
fn lines_of_documents_are_a_dataset(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        let open = details(books, "2026-02").await;
        assert_eq!(open, lines_of_february("Issued")[..2], "an open month has credit notes, but no invoice");
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        assert_eq!(details(books, "2026-01").await, LINES_OF_JANUARY);
        assert_eq!(details(books, "2026-02").await, lines_of_february("Issued"));
        books.set_time("2026-03-05T00:00:00Z");
        books.void_invoice(2).await;
        assert_eq!(details(books, "2026-02").await, lines_of_february("Voided"));
        assert_eq!(
            details(books, "2026-03").await,
            ["invoice 2, Voided 2026-03-02: Invoice 2 of 2026-02 is void: -0.00975"]
        );
        // Each line equals the sum of the charges that refer to it.
        for month in ["2026-01", "2026-02", "2026-03"] {
            let mut sums = std::collections::BTreeMap::<_, i128>::new();
            for row in csv::rows(&get(books, month, "version=1.4").await) {
                let line = (row["InvoiceId"].clone(), row["InvoiceDetailId"].clone());
                assert!(!line.1.is_empty(), "{row:?}");
                *sums.entry(line).or_default() += cost(&row, "BilledCost");
            }
            sums.retain(|_, sum| *sum != 0);
            let rows = csv::rows(&get(books, month, "version=1.4&dataset=invoice_detail").await);
            let lines: std::collections::BTreeMap<_, _> = rows
                .iter()
                .map(|row| {
                    ((row["InvoiceId"].clone(), row["InvoiceDetailId"].clone()), cost(row, "BilledCost"))
                })
                .collect();
            assert_eq!((lines.len(), &lines), (rows.len(), &sums), "{month}");
        }
    });
}

#[on_each_database]
fn billing_period_says_whether_it_is_closed(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        let period = async |books: &Books<'_>, month: &str| {
            let rows = csv::rows(&get(books, month, "version=1.4&dataset=billing_period").await);
            let [row] = &rows[..] else { panic!("{rows:?}") };
            ["Created", "End", "LastUpdated", "Start", "Status"]
                .map(|name| row[&*format!("BillingPeriod{name}")].clone())
                .join(" ")
        };
        assert_eq!(
            period(books, "2026-01").await,
            "2026-01-01T09:00:00Z 2026-02-01T00:00:00Z 2026-02-02T00:00:00Z 2026-01-01T00:00:00Z Closed"
        );
        assert_eq!(
            period(books, "2026-02").await,
            "2026-02-01T00:00:00Z 2026-03-01T00:00:00Z 2026-02-01T00:00:00Z 2026-02-01T00:00:00Z Open"
        );
    });
}
