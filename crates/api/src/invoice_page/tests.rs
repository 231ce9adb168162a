use super::*;
use billing::store::invoices::Issuer;
use kernel::clock::{Month, Time};
use kernel::ids::{CreditNoteId, InvoiceId, OrganizationId};

fn invoice(status: Status, amount: i128, due: i128) -> Invoice {
    let at = Time::parse("2026-02-02T00:01:00Z").unwrap();
    Invoice {
        id: InvoiceId::from_parts(at, 1),
        number: 42,
        organization_id: OrganizationId::from_parts(at, 2),
        organization_name: "<b>A & B</b>".into(),
        month: Month::from_unix_months(672),
        currency: "USD".into(),
        amount: Nano::from_units(amount),
        brought_forward: Nano::ZERO,
        due: Nano::from_units(due),
        status,
        finalized_at: at,
        paid_at: (status == Status::Paid).then_some(at),
        voided_at: (status == Status::Void).then_some(at),
        issuer: Issuer::default(),
    }
}

fn item(kind: ItemKind, quantity: i64, price: &str) -> Item {
    let unit_price = Pico::parse(price).unwrap();
    let amount = unit_price.checked_mul(quantity).unwrap();
    Item { kind, description: "<i>\"'&".into(), quantity, unit_price, amount }
}

#[test]
fn all_text_is_escaped() {
    let items = [item(ItemKind::Usage, 1, "1")];
    let issuer = Issuer { name: Some("<s>".into()), address: Some("<p1>\n<p2>".into()) };
    let invoice = Invoice { currency: "<u>".into(), issuer, ..invoice(Status::Open, 1, 1) };
    let note = CreditNote {
        id: CreditNoteId::from_parts(invoice.finalized_at, 3),
        number: 7,
        organization_id: invoice.organization_id,
        invoice_id: invoice.id,
        month: invoice.month,
        booked_month: invoice.month.plus(1),
        reference: "<em>/<q>".into(),
        amount: Nano::from_units(5),
        created_at: invoice.finalized_at,
    };
    let notes = [(note, vec![item(ItemKind::Correction, -1, "0.000000005")])];
    let page = PrintableInvoice { invoice: &invoice, items: &items, notes: &notes };
    let html = page.html().unwrap();
    for tag in ["<b>A", "<i>", "<s>", "<p1>", "<p2>", "<u>", "<em>", "<q>", "<script"] {
        assert!(!html.contains(tag), "{tag}");
    }
    assert!(html.contains("&#60;b&#62;A &#38; B&#60;/b&#62;") && html.contains("&#60;i&#62;&#34;&#39;&#38;"));
    assert!(html.contains("<span>&#60;p1&#62;</span>\n<span>&#60;p2&#62;</span>"));
}

#[test]
fn figures_are_formatted() {
    let items = [item(ItemKind::Usage, 1_234_567, "0.5"), item(ItemKind::Usage, 1, "0.000258")];
    let invoice = invoice(Status::Open, 617_283_500_258_000, 17_283_500_258_000);
    let html = PrintableInvoice { invoice: &invoice, items: &items, notes: &[] }.html().unwrap();
    for words in [
        "<td>1,234,567</td><td class=\"pad4\">0.50</td><td class=\"pad2\">617,283.50</td>",
        "<td class=\"pad0\">0.000258</td><td class=\"pad0\" title=\"0.000258 USD\">0.0003</td>",
        // 617,283.50 + 0.0003 + 0.0097 = 617,283.51
        "<tr><td>Rounding</td><td></td><td></td><td class=\"pad0\">0.0097</td>",
        "<dt>Total</dt><dd title=\"617,283.500258 USD\">617,283.51 USD</dd>",
        "<dt>Paid</dt><dd>600,000.00 USD</dd>",
        "<dt>Amount due</dt><dd title=\"17,283.500258 USD\">17,283.51 USD</dd>",
        "<dt>Invoice date</dt><dd><time datetime=\"2026-02-02\">2 Feb 2026</time></dd>",
        "<time datetime=\"2026-01-01\">1 Jan 2026</time> to <time datetime=\"2026-01-31\">31 Jan 2026</time> (UTC)",
        "Usage in January 2026",
        "class=\"stamp open\">Open<",
    ] {
        assert!(html.contains(words), "{words}\n{html}");
    }
}

#[test]
fn balance_brought_forward_is_below_the_total() {
    let forward = Nano::from_units(20_000_000_000);
    let invoice =
        Invoice { brought_forward: forward, ..invoice(Status::Open, 5_000_000_000, 22_000_000_000) };
    let html = PrintableInvoice { invoice: &invoice, items: &[], notes: &[] }.html().unwrap();
    let lines = [
        "<dt>Total</dt><dd>5.00 USD</dd>",
        "<dt>Balance brought forward</dt><dd>20.00 USD</dd>",
        "<dt>Paid</dt><dd>3.00 USD</dd>",
        "<dt>Amount due</dt><dd>22.00 USD</dd>",
    ];
    let places: Vec<_> = lines.iter().map(|line| html.find(line)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{html}");
}

#[test]
fn void_invoice_is_marked() {
    let invoice = invoice(Status::Void, 5_000_000_000, 0);
    let html = PrintableInvoice { invoice: &invoice, items: &[], notes: &[] }.html().unwrap();
    assert!(
        html.contains("class=\"stamp void\">Void<")
            && html.contains("<dt>Voided on</dt><dd><time datetime=\"2026-02-02\">2 Feb 2026</time></dd>")
    );
    assert!(html.contains("No payment is due.") && !html.contains("<dt>Paid</dt>"));
}

#[test]
fn policy_allows_only_the_style() {
    let invoice = invoice(Status::Paid, 0, 0);
    let html = PrintableInvoice { invoice: &invoice, items: &[], notes: &[] }.html().unwrap();
    let style = html.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    let hash = STANDARD.encode(sha256(style.as_bytes()));
    assert!(CONTENT_SECURITY_POLICY.contains(&format!("style-src 'sha256-{hash}'")));
    for forbidden in ["<script", "style=", "http://", "https://", "url(", "onload", "<link", "<img"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn unpayable_amount_is_rounded_up_in_a_note() {
    let page = |currency: &str, status, amount, due| {
        let invoice = Invoice { currency: currency.into(), ..invoice(status, amount, due) };
        PrintableInvoice { invoice: &invoice, items: &[], notes: &[] }.html().unwrap()
    };
    let html = page("USD", Status::Open, 7_257_404_000, 7_257_404_000);
    assert!(html.contains("<dt>Amount due</dt><dd title=\"7.257404 USD\">7.26 USD</dd>"), "{html}");
    let note =
        "Please pay 7.26 USD. Any excess over the exact amount due, 7.257404 USD, stays in your balance.";
    assert!(html.contains(note), "{html}");
    assert!(page("JPY", Status::Open, 1_000_000_001, 1).contains("Please pay 1 JPY."));
    for (currency, status, due) in
        [("USD", Status::Open, 7_250_000_000), ("KWD", Status::Open, 7_257_000_000), ("USD", Status::Paid, 0)]
    {
        assert!(!page(currency, status, 7_257_404_000, due).contains("Please pay"), "{currency} {due}");
    }
}

#[test]
fn earlier_credit_is_not_shown_as_paid() {
    let sums = |amount, due| {
        let status = if due == 0 { Status::Paid } else { Status::Open };
        let invoice = invoice(status, amount, due);
        let html = PrintableInvoice { invoice: &invoice, items: &[], notes: &[] }.html().unwrap();
        html.split("<dl class=\"sums\">").nth(1).unwrap().split("</dl>").next().unwrap().to_owned()
    };
    // A correction lowered an older invoice by 1. The total of 2 includes this as a line, so 3 are due.
    let more = sums(2_000_000_000, 3_000_000_000);
    assert!(more.contains("<dt>Credited before</dt><dd>1.00 USD</dd>") && !more.contains(">Paid<"), "{more}");
    let less = sums(-1_800_000_000, 0);
    assert!(less.contains("<dt>Total</dt><dd>-1.80 USD</dd>"), "{less}");
    assert!(less.contains("<dt>Credited before</dt><dd>1.80 USD</dd>"), "{less}");
    assert!(sums(0, 0).contains("<dt>Paid</dt><dd>0.00 USD</dd>"));
}

#[test]
fn decimal_points_align_without_a_minor_unit() {
    let items = [item(ItemKind::Usage, 1_000, "1"), item(ItemKind::Usage, 1, "0.25")];
    let invoice = Invoice { currency: "JPY".into(), ..invoice(Status::Paid, 1_000_250_000_000, 0) };
    let html = PrintableInvoice { invoice: &invoice, items: &items, notes: &[] }.html().unwrap();
    let whole = "<td class=\"pad2\"><span class=\"whole\">1</span></td><td class=\"pad2\"><span class=\"whole\">1,000</span></td>";
    assert!(html.contains(whole) && html.contains("<td class=\"pad0\">0.25</td>"), "{html}");
}

/// Returns the sums of an invoice: name, figure, and the exact amount if it isn't the figure.
fn sums(invoice: &Invoice, items: &[Item], notes: &[(CreditNote, Vec<Item>)]) -> Vec<String> {
    let sums = PrintableInvoice { invoice, items, notes }.sums().into_iter();
    let exact = |exact: Option<String>| exact.map(|exact| format!(" ({exact})")).unwrap_or_default();
    sums.map(|sum| format!("{} {}{}", sum.name, sum.figure, exact(sum.exact))).collect()
}

#[test]
fn figures_below_the_table_add_up() {
    // Three lines of 1.001, less 0.25: 2.753. Rounded separately, the usage would be 3.00, but 3.00 - 0.25
    // isn't 2.76.
    let usage = || item(ItemKind::Usage, 1, "1.001");
    let items = [usage(), usage(), usage(), item(ItemKind::Discount, 1, "-0.25")];
    let open = invoice(Status::Open, 2_753_000_000, 2_753_000_000);
    assert_eq!(
        sums(&open, &items, &[]),
        [
            "Usage at list price 3.01 (3.003 USD)",
            "Volume discounts -0.25",
            "Total 2.76 (2.753 USD)",
            "Paid 0.00",
            "Amount due 2.76 (2.753 USD)",
        ]
    );
    // The lines above are 1.00 each: 3.00 - 0.25 + 0.01.
    let html = PrintableInvoice { invoice: &open, items: &items, notes: &[] }.html().unwrap();
    assert!(html.contains("<tr><td>Rounding</td><td></td><td></td><td class=\"pad0\">0.01</td>"), "{html}");
    assert_eq!(html.matches("<td class=\"pad0\" title=\"1.001 USD\">1.00</td>").count(), 3, "{html}");

    // Paid from the balance, and in part.
    let paid = invoice(Status::Paid, 2_753_000_000, 0);
    assert_eq!(
        sums(&paid, &items, &[])[2..],
        ["Total 2.76 (2.753 USD)", "Paid 2.76 (2.753 USD)", "Amount due 0.00"]
    );
    let in_part = invoice(Status::Open, 5_000_000_000, 2_496_000_000);
    let five = [item(ItemKind::Usage, 1, "5")];
    assert_eq!(
        sums(&in_part, &five, &[]),
        ["Total 5.00", "Paid 2.50 (2.504 USD)", "Amount due 2.50 (2.496 USD)"]
    );
    // Usage alone is the total, also if the units of the balance were rounded.
    let rounded = [item(ItemKind::Usage, 1, "5.0000000004"), item(ItemKind::Rounding, 1, "-0.0000000004")];
    let whole = invoice(Status::Paid, 5_000_000_000, 0);
    assert_eq!(sums(&whole, &rounded, &[]), ["Total 5.00", "Paid 5.00", "Amount due 0.00"]);
}

#[test]
fn sums_that_no_rounding_makes_add_up_have_a_line() {
    let open = invoice(Status::Open, 2_975_000_000, 2_000_000_000);
    let note = CreditNote {
        id: CreditNoteId::from_parts(open.finalized_at, 3),
        number: 7,
        organization_id: open.organization_id,
        invoice_id: open.id,
        month: open.month,
        booked_month: open.month.plus(1),
        reference: "tests/e2".into(),
        amount: Nano::from_units(975_000_000),
        created_at: open.finalized_at,
    };
    let items = [item(ItemKind::Usage, 1, "3"), item(ItemKind::Discount, 1, "-0.025")];
    let back = vec![item(ItemKind::Correction, -1, "1"), item(ItemKind::Discount, 1, "0.025")];
    assert_eq!(
        sums(&open, &items, &[(note, back)]),
        [
            "Usage at list price 3.00",
            "Volume discounts -0.03 (-0.025 USD)",
            "Rounding 0.01",
            "Total 2.98 (2.975 USD)",
            "Credit notes -0.97 (-0.975 USD)",
            // Nothing was paid.
            "Paid 0.00",
            "Rounding -0.01",
            "Amount due 2.00",
        ]
    );
}
