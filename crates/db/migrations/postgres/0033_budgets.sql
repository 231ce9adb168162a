-- Budgets: how much an organization, a project or an API key may use in a day, a month or in all. `subject_id` is the id of the
-- organization, project or key; `project_id` is the project, or the project of the key. `reserved_nano` is the sum of the live
-- reservations of the subject. Nothing here refers to the tables of organizations, projects and keys, as everything of the books.
-- Only the holder of the wallet's lock writes these tables.
CREATE TABLE budgets (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C" NOT NULL,
    scope TEXT COLLATE "C" NOT NULL CHECK (scope IN ('organization', 'project', 'api_key')),
    subject_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C",
    name TEXT COLLATE "C" NOT NULL,
    name_folded TEXT COLLATE "C" NOT NULL,
    period TEXT COLLATE "C" NOT NULL CHECK (period IN ('day', 'month', 'total')),
    limit_nano BIGINT NOT NULL CHECK (limit_nano > 0),
    hard BIGINT NOT NULL,
    thresholds TEXT COLLATE "C" NOT NULL,
    reserved_nano BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX budgets_organization_id ON budgets (organization_id, id);
CREATE UNIQUE INDEX budgets_organization_id_name_folded ON budgets (organization_id, name_folded);
CREATE INDEX budgets_subject_id ON budgets (subject_id);

-- The list price of the usage of a budget's subject in the period whose first day is `period_start` (0 for `total`): whole units
-- of the currency, and pico. A period without usage has no row.
CREATE TABLE budget_uses (
    budget_id TEXT COLLATE "C" NOT NULL,
    period_start BIGINT NOT NULL,
    spent_whole BIGINT NOT NULL,
    spent_pico BIGINT NOT NULL,
    PRIMARY KEY (budget_id, period_start)
);

-- The thresholds, in percent of the limit, that a budget has reached in a period, each once. `limit_nano`, `spent_whole` and `spent_pico`
-- are as they were then. `mailed_at`: NULL until the mails about it are in the outbox.
CREATE TABLE budget_alerts (
    budget_id TEXT COLLATE "C" NOT NULL,
    period_start BIGINT NOT NULL,
    threshold BIGINT NOT NULL,
    limit_nano BIGINT NOT NULL,
    spent_whole BIGINT NOT NULL,
    spent_pico BIGINT NOT NULL,
    reached_at BIGINT NOT NULL,
    mailed_at BIGINT,
    PRIMARY KEY (budget_id, period_start, threshold)
);
CREATE INDEX budget_alerts_not_mailed ON budget_alerts (reached_at, budget_id) WHERE mailed_at IS NULL;

-- The number of the organization's budgets: without any, calls don't look for them.
ALTER TABLE wallets ADD COLUMN budgets BIGINT NOT NULL DEFAULT 0;

-- The alert of the balance: below `alert_below_nano` people are told, once until the balance is back. `low_at`: since when it is below,
-- NULL: it isn't; `low_posted_nano`: the balance then; `low_mailed_at`: NULL until the mails about it are in the outbox.
ALTER TABLE wallets ADD COLUMN alert_below_nano BIGINT;
ALTER TABLE wallets ADD COLUMN low_at BIGINT;
ALTER TABLE wallets ADD COLUMN low_posted_nano BIGINT;
ALTER TABLE wallets ADD COLUMN low_mailed_at BIGINT;
CREATE INDEX wallets_low_not_mailed ON wallets (low_at) WHERE low_at IS NOT NULL AND low_mailed_at IS NULL;
