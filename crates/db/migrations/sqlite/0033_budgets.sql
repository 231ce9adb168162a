-- Budgets: how much an organization, a project or an API key may use in a day, a month or in all. `subject_id` is the id of the
-- organization, project or key; `project_id` is the project, or the project of the key. `reserved_nano` is the sum of the live
-- reservations of the subject. Nothing here refers to the tables of organizations, projects and keys, as everything of the books.
-- Only the holder of the wallet's lock writes these tables.
CREATE TABLE budgets (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('organization', 'project', 'api_key')),
    subject_id TEXT NOT NULL,
    project_id TEXT,
    name TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    period TEXT NOT NULL CHECK (period IN ('day', 'month', 'total')),
    limit_nano INTEGER NOT NULL CHECK (limit_nano > 0),
    hard INTEGER NOT NULL,
    thresholds TEXT NOT NULL,
    reserved_nano INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX budgets_organization_id ON budgets (organization_id, id);
CREATE UNIQUE INDEX budgets_organization_id_name_folded ON budgets (organization_id, name_folded);
CREATE INDEX budgets_subject_id ON budgets (subject_id);

-- The list price of the usage of a budget's subject in the period whose first day is `period_start` (0 for `total`): whole units
-- of the currency, and pico. A period without usage has no row.
CREATE TABLE budget_uses (
    budget_id TEXT NOT NULL,
    period_start INTEGER NOT NULL,
    spent_whole INTEGER NOT NULL,
    spent_pico INTEGER NOT NULL,
    PRIMARY KEY (budget_id, period_start)
) STRICT;

-- The thresholds, in percent of the limit, that a budget has reached in a period, each once. `limit_nano`, `spent_whole` and `spent_pico`
-- are as they were then. `mailed_at`: NULL until the mails about it are in the outbox.
CREATE TABLE budget_alerts (
    budget_id TEXT NOT NULL,
    period_start INTEGER NOT NULL,
    threshold INTEGER NOT NULL,
    limit_nano INTEGER NOT NULL,
    spent_whole INTEGER NOT NULL,
    spent_pico INTEGER NOT NULL,
    reached_at INTEGER NOT NULL,
    mailed_at INTEGER,
    PRIMARY KEY (budget_id, period_start, threshold)
) STRICT;
CREATE INDEX budget_alerts_not_mailed ON budget_alerts (reached_at, budget_id) WHERE mailed_at IS NULL;

-- The number of the organization's budgets: without any, calls don't look for them.
ALTER TABLE wallets ADD COLUMN budgets INTEGER NOT NULL DEFAULT 0;

-- The alert of the balance: below `alert_below_nano` people are told, once until the balance is back. `low_at`: since when it is below,
-- NULL: it isn't; `low_posted_nano`: the balance then; `low_mailed_at`: NULL until the mails about it are in the outbox.
ALTER TABLE wallets ADD COLUMN alert_below_nano INTEGER;
ALTER TABLE wallets ADD COLUMN low_at INTEGER;
ALTER TABLE wallets ADD COLUMN low_posted_nano INTEGER;
ALTER TABLE wallets ADD COLUMN low_mailed_at INTEGER;
CREATE INDEX wallets_low_not_mailed ON wallets (low_at) WHERE low_at IS NOT NULL AND low_mailed_at IS NULL;
