//! Faults in the books of [`super::recount`], such as a faulty version or a manual change could cause. `$1`
//! is the organization.

/// A fault: the statements that plant it, and the rules that find it.
pub struct Fault {
    pub name: &'static str,
    pub statements: &'static [&'static str],
    /// The rules that must report the fault.
    pub found_by: &'static [&'static str],
}

pub const fn fault(
    name: &'static str,
    statements: &'static [&'static str],
    found_by: &'static [&'static str],
) -> Fault {
    Fault { name, statements, found_by }
}

/// March, April and May 2026, in months since 1970-01.
pub const FAULTS: &[Fault] = &[
    fault(
        "an event has the earlier price",
        &[
            "UPDATE usage_events SET price_version = 1704067200000, amount_pico = prompt_tokens * 2000000
             WHERE organization_id = $1 AND model = 'chat-a' AND prompt_tokens = 1000",
            "UPDATE usage_daily SET price_version = 1704067200000, amount_pico = prompt_tokens * 2000000,
                 posted_nano = prompt_tokens * 2000 WHERE organization_id = $1 AND model = 'chat-a' AND month = 676",
        ],
        &["recount_price"],
    ),
    fault(
        "an event costs more than its tokens",
        &["UPDATE usage_events SET amount_pico = amount_pico + 1 WHERE prompt_tokens = 1000"],
        &["recount_price", "recount_events"],
    ),
    fault(
        "a daily row costs more than its tokens",
        &["UPDATE usage_daily SET amount_pico = amount_pico + 1 WHERE organization_id = $1 AND month = 676"],
        &["recount_day"],
    ),
    fault(
        "a daily row is doubled, with its movement",
        &[
            "UPDATE usage_daily SET requests = requests * 2, prompt_tokens = prompt_tokens * 2, amount_pico = amount_pico * 2,
                 posted_nano = posted_nano * 2 WHERE organization_id = $1 AND month = 676 AND model = 'chat-idr'",
            "UPDATE ledger_entries SET amount_nano = amount_nano * 2
             WHERE transaction_id = (SELECT transaction_id FROM ledger_entries WHERE account = 'wallet' AND amount_nano = -1600000000)",
            "UPDATE wallets SET posted_nano = posted_nano - 1600000000 WHERE organization_id = $1",
        ],
        &["recount_events"],
    ),
    fault(
        "an event is lost",
        &["DELETE FROM usage_events WHERE organization_id = $1 AND prompt_tokens = 10"],
        &["recount_events"],
    ),
    fault(
        "a movement of usage is missing",
        &[
            "UPDATE wallets SET posted_nano = posted_nano + 1600000000 WHERE organization_id = $1",
            "DELETE FROM ledger_entries WHERE transaction_id =
                 (SELECT transaction_id FROM ledger_entries WHERE account = 'wallet' AND amount_nano = -1600000000)",
        ],
        &["recount_balance"],
    ),
    fault(
        "a balance, the ledger and a credit are too high",
        &[
            "UPDATE wallets SET posted_nano = posted_nano + 3000000000 WHERE organization_id = $1",
            "INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
             VALUES ('ltx_gift', $1, 'discount', 'discount:gift', 0)",
            "INSERT INTO ledger_entries VALUES ('ltx_gift', 'wallet', $1, 3000000000)",
            "INSERT INTO ledger_entries VALUES ('ltx_gift', 'discounts', $1, -3000000000)",
            "INSERT INTO credits (id, organization_id, kind, reference, amount_nano, remaining_nano, created_at)
             VALUES ('credit_gift', $1, 'discount', 'discount:gift', 3000000000, 3000000000, 0)",
        ],
        &["recount_balance"],
    ),
    fault(
        "usage is billed twice",
        &["UPDATE invoices SET amount_nano = amount_nano * 2 WHERE organization_id = $1 AND month = 675"],
        &["recount_invoice", "recount_balance"],
    ),
    fault(
        "a discount isn't given",
        &["UPDATE invoices SET amount_nano = amount_nano + 125000000 WHERE organization_id = $1 AND month = 674"],
        &["recount_invoice", "recount_balance"],
    ),
    fault(
        "M2a: a debt from before is charged once more",
        &[
            "UPDATE invoices SET amount_nano = amount_nano + 20000000000, brought_forward_nano = NULL
             WHERE organization_id = $1 AND month = 675",
            "INSERT INTO invoice_items (invoice_id, position, kind, description, quantity, unit_price, amount)
             SELECT id, 99, 'carried_over', 'Carried over', 1, '20', '20' FROM invoices WHERE month = 675",
        ],
        &["recount_invoice"],
    ),
    fault(
        "a credit note refunds twice as much",
        &["UPDATE credit_notes SET amount_nano = amount_nano * 2 WHERE organization_id = $1"],
        &["recount_credit_notes", "recount_balance"],
    ),
    fault(
        "M1: all of a dispute came back, though the bank has brought back a part",
        &[
            "UPDATE payment_disputes SET amount_minor = 10000, reinstated_at = withdrawn_at, bookings = 1 WHERE organization_id = $1",
            "UPDATE payments SET disputed_minor = 0 WHERE organization_id = $1 AND disputed_minor <> 0",
            "UPDATE ledger_entries SET amount_nano = CASE WHEN account = 'wallet' THEN 100000000000 ELSE -100000000000 END
             WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE idempotency_key LIKE 'payment:%:back%')",
            "UPDATE credits SET amount_nano = 100000000000, remaining_nano = remaining_nano + 60000000000
             WHERE reference LIKE 'payment:%:back%'",
            "UPDATE wallets SET posted_nano = posted_nano + 60000000000 WHERE organization_id = $1",
        ],
        &["recount_dispute"],
    ),
    fault(
        "M13: what was withdrawn again isn't taken again",
        &["UPDATE payment_statements SET moved = moved || ' 4000000000:-4000:usd' WHERE kind = 'dispute'"],
        &["recount_dispute"],
    ),
    fault(
        "M4: a refund at Stripe is lost",
        &[
            "UPDATE payments SET refunded_minor = 0 WHERE organization_id = $1 AND refunded_minor <> 0",
            "DELETE FROM ledger_entries WHERE transaction_id IN (SELECT t.id FROM ledger_transactions t
                 JOIN payment_refunds r ON t.idempotency_key LIKE '%:' || r.id || ':%')",
            "UPDATE wallets SET posted_nano = posted_nano + 40000000000 WHERE organization_id = $1",
            "DELETE FROM payment_refunds WHERE organization_id = $1",
        ],
        &["recount_refund"],
    ),
    fault(
        "M4: a dispute at Stripe is lost",
        &[
            "UPDATE payments SET disputed_minor = 0 WHERE organization_id = $1 AND disputed_minor <> 0",
            "DELETE FROM ledger_entries WHERE transaction_id IN (SELECT t.id FROM ledger_transactions t
                 JOIN payment_disputes d ON t.idempotency_key LIKE '%:' || d.id || ':%')",
            "UPDATE wallets SET posted_nano = posted_nano + 60000000000 WHERE organization_id = $1",
            "DELETE FROM payment_disputes WHERE organization_id = $1",
        ],
        &["recount_dispute"],
    ),
    fault(
        "a refund is recorded twice",
        &["UPDATE payments SET refunded_minor = refunded_minor * 2 WHERE refunded_minor <> 0"],
        &["recount_returned"],
    ),
    fault(
        "a returned dispute is credited twice",
        &[
            "INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
             SELECT 'ltx_back', organization_id, kind, idempotency_key || '9', happened_at
             FROM ledger_transactions WHERE idempotency_key LIKE 'payment:%:back%'",
            "INSERT INTO ledger_entries VALUES ('ltx_back', 'wallet', $1, 40000000000)",
            "INSERT INTO ledger_entries VALUES ('ltx_back', 'purchases', $1, -40000000000)",
            "UPDATE wallets SET posted_nano = posted_nano + 40000000000 WHERE organization_id = $1",
        ],
        &["recount_payment", "recount_balance"],
    ),
    fault(
        "a payment is credited twice",
        &[
            "INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
             SELECT 'ltx_twice', $1, 'payment', 'payment:' || id || ':once more', 0 FROM payments WHERE amount_minor = 2000",
            "INSERT INTO ledger_entries VALUES ('ltx_twice', 'wallet', $1, 20000000000)",
            "INSERT INTO ledger_entries VALUES ('ltx_twice', 'purchases', $1, -20000000000)",
            "UPDATE wallets SET posted_nano = posted_nano + 20000000000 WHERE organization_id = $1",
        ],
        &["recount_payment", "recount_balance"],
    ),
    fault(
        "a payment is credited with more than Stripe received",
        &[
            "UPDATE ledger_entries SET amount_nano = amount_nano + CASE WHEN account = 'wallet' THEN 3800000000 ELSE -3800000000 END
             WHERE transaction_id = (SELECT t.id FROM ledger_transactions t JOIN payments p ON p.amount_minor = 2000
                 AND t.idempotency_key = 'payment:' || p.id)",
            "UPDATE credits SET amount_nano = amount_nano + 3800000000, remaining_nano = remaining_nano + 3800000000
             WHERE organization_id = $1 AND amount_nano = 20000000000",
            "UPDATE wallets SET posted_nano = posted_nano + 3800000000 WHERE organization_id = $1",
            "UPDATE payments SET amount_minor = 2380 WHERE amount_minor = 2000",
        ],
        &["recount_received"],
    ),
    fault(
        "a failed payment is credited",
        &["UPDATE payments SET status = 'failed' WHERE amount_minor = 2000"],
        &["recount_payment", "recount_received", "recount_balance"],
    ),
    fault(
        "a credit limit is changed by hand",
        &["UPDATE wallets SET credit_limit_nano = 500000000000 WHERE organization_id = $1"],
        &["recount_credit_limit"],
    ),
    fault(
        "a credit is added by hand",
        &[
            "INSERT INTO credits (id, organization_id, kind, reference, amount_nano, remaining_nano, created_at)
             SELECT 'credit_hand', $1, 'grant', 'by hand', 10000000000, 10000000000, MAX(happened_at) FROM audit_log",
            "INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
             VALUES ('ltx_hand', $1, 'credit', 'credit:by hand', 0)",
            "INSERT INTO ledger_entries VALUES ('ltx_hand', 'wallet', $1, 10000000000)",
            "INSERT INTO ledger_entries VALUES ('ltx_hand', 'grants', $1, -10000000000)",
            "UPDATE wallets SET posted_nano = posted_nano + 10000000000 WHERE organization_id = $1",
        ],
        &["recount_credit"],
    ),
    fault(
        "a credit is raised by hand",
        &[
            "UPDATE credits SET amount_nano = amount_nano + 1000000000, remaining_nano = remaining_nano + 1000000000
             WHERE reference = 'welcome'",
            "UPDATE ledger_entries SET amount_nano = amount_nano + CASE WHEN account = 'wallet' THEN 1000000000 ELSE -1000000000 END
             WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE idempotency_key = 'credit:welcome')",
            "UPDATE wallets SET posted_nano = posted_nano + 1000000000 WHERE organization_id = $1",
        ],
        &["recount_credit"],
    ),
    fault(
        "M5: an automatic top-up of any size",
        &[
            "UPDATE ledger_entries SET amount_nano = CASE WHEN account = 'wallet' THEN 22500000000000 ELSE -22500000000000 END
             WHERE transaction_id = (SELECT t.id FROM ledger_transactions t JOIN payments p ON p.kind = 'auto_top_up'
                 AND t.idempotency_key = 'payment:' || p.id)",
            "UPDATE credits SET amount_nano = 22500000000000, remaining_nano = remaining_nano + 22455000000000
             WHERE organization_id = $1 AND amount_nano = 45000000000",
            "UPDATE wallets SET posted_nano = posted_nano + 22455000000000 WHERE organization_id = $1",
            "UPDATE payment_statements SET amount_minor = 2250000 WHERE amount_minor = 4500",
            "UPDATE payments SET amount_minor = 2250000 WHERE kind = 'auto_top_up'",
        ],
        &["recount_top_up"],
    ),
    fault(
        "M3: a declined top-up is tried again after five minutes",
        &["INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, attempts, next_at, failure_code, caller,
               created_at, updated_at)
           VALUES ('payment_declined', $1, 'auto_top_up', 4500, 'USD', 'processing', 1, 1777000300000, 'insufficient_funds',
               'system', 1777000000000, 1777000000000)"],
        &["recount_top_up_time"],
    ),
    fault(
        "M6: a customer that Stripe doesn't have pauses a top-up as declined",
        &[
            "INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, failure_code, caller, created_at, updated_at)
             VALUES ('payment_gone', $1, 'auto_top_up', 4500, 'USD', 'failed', 'resource_missing', 'system', 1777000000000, 1777000000000)",
            "UPDATE auto_top_ups SET paused_reason = 'declined' WHERE organization_id = $1",
        ],
        &["recount_top_up_pause"],
    ),
    fault(
        "M16: the operator's account pauses a top-up as declined",
        &[
            "INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, failure_code, caller, created_at, updated_at)
             VALUES ('payment_account', $1, 'auto_top_up', 4500, 'USD', 'failed', 'account_invalid', 'system', 1777000000000,
                 1777000000000)",
            "UPDATE auto_top_ups SET paused_reason = 'declined' WHERE organization_id = $1",
        ],
        &["recount_top_up_pause"],
    ),
    fault(
        "M14: an invoice is paid on its page days after it was paid",
        &["UPDATE payments SET kind = 'invoice', invoice_id = (SELECT id FROM invoices WHERE month = 674),
               paid_at = (SELECT paid_at FROM invoices WHERE month = 674) + 200000000 WHERE amount_minor = 2000"],
        &["recount_invoice_page"],
    ),
    fault(
        "M14: a page is paid after its organization was deleted",
        &["INSERT INTO audit_log (id, happened_at, actor, action, target, organization_id)
           VALUES ('audit_deleted', 1773000000000, 'system', 'organization.deleted', $1, $1)"],
        &["recount_orphan"],
    ),
];

pub const BROUGHT_FORWARD: &[Fault] = &[fault(
    "a debt is also brought forward by the next invoice",
    &["UPDATE invoices SET brought_forward_nano = 20000000000, due_nano = due_nano + 20000000000
       WHERE organization_id = $1 AND month = 676"],
    &["recount_brought_forward"],
)];

pub const WRITE_OFF: &[Fault] = &[fault(
    "M9: a correction refunds what was paid before it lowers what was given up",
    &[
        "UPDATE ledger_entries SET amount_nano = CASE WHEN account = 'wallet' THEN -2000000000 ELSE 2000000000 END
         WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE idempotency_key LIKE 'write_off:invoice%:ltx%')",
        "UPDATE credits SET remaining_nano = remaining_nano + 4000000000 WHERE organization_id = $1 AND reference = 'transfer 1'",
        "UPDATE credit_uses SET amount_nano = amount_nano - 4000000000 WHERE organization_id = $1",
        "UPDATE wallets SET posted_nano = posted_nano + 4000000000 WHERE organization_id = $1",
    ],
    &["recount_write_off"],
)];

pub const FIRST_LIMIT: &[Fault] = &[fault(
    "a credit limit that was never set is changed by hand",
    &["UPDATE wallets SET credit_limit_nano = credit_limit_nano + 1 WHERE organization_id = $1"],
    &["recount_credit_limit"],
)];
