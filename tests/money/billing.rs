//! Months, invoices and credits: from usage to invoices.

mod balance_alerts;
mod budgets;
mod by_hand;
mod cached_tokens;
mod commands;
mod components;
mod drifts;
mod edges;
mod endings;
mod exports;
mod golden;
mod golden_edges;
mod golden_months_of_use;
mod golden_returns;
mod history;
mod interrupted;
mod jobs;
mod money_page;
mod movements;
mod operating;
mod outage;
mod prices;
mod reading;
mod totals;
mod webhook_events;
mod webhook_standings;
