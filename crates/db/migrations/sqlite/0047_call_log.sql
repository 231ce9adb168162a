-- The log of model calls. The books never read it.

-- Ids and names, which rows of the log refer to by number: of organizations, projects, callers, models, upstreams, error codes and sources.
CREATE TABLE call_names (
    number INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX call_names_name ON call_names (name);

-- A row for each model call, and for each refused call of a known caller. `second`, `part` and `low` are the call's id: seconds since
-- 2020-01-01, then milliseconds and random bits. Numbers of names are 0 and counts are -1 for what isn't known.
CREATE TABLE calls (
    low INTEGER NOT NULL,
    request_low INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    organization INTEGER NOT NULL,
    project INTEGER NOT NULL,
    caller INTEGER NOT NULL,
    second INTEGER NOT NULL,
    part INTEGER NOT NULL,
    request_second INTEGER NOT NULL,
    request_part INTEGER NOT NULL,
    model INTEGER NOT NULL,
    upstream INTEGER NOT NULL,
    upstream_model INTEGER NOT NULL,
    code INTEGER NOT NULL,
    source INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    first_event_ms INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    repeated INTEGER NOT NULL,
    -- The number of usage events that count as requests: 0 for a call that wasn't charged.
    events INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    -- 1: a stream; 2: the counts are estimates.
    flags INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    status INTEGER NOT NULL,
    user_agent INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    end_user TEXT NOT NULL
) STRICT;
CREATE INDEX calls_organization ON calls (organization, second);
CREATE INDEX calls_project ON calls (project, second);
CREATE INDEX calls_caller ON calls (caller, second);

-- Sums of the calls of each hour since 1970, project, caller, model and error code. `first_…` and `duration_…` count calls by the time to
-- the first event and by their duration: bucket n ends at 10 ms times √2 to the power of n, the last one has no end.
CREATE TABLE call_hours (
    organization INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    project INTEGER NOT NULL,
    caller INTEGER NOT NULL,
    model INTEGER NOT NULL,
    code INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    amount_pico INTEGER NOT NULL,
    -- The completion tokens and milliseconds of calls whose duration is known.
    timed_tokens INTEGER NOT NULL,
    timed_ms INTEGER NOT NULL,
    first_0 INTEGER NOT NULL,
    first_1 INTEGER NOT NULL,
    first_2 INTEGER NOT NULL,
    first_3 INTEGER NOT NULL,
    first_4 INTEGER NOT NULL,
    first_5 INTEGER NOT NULL,
    first_6 INTEGER NOT NULL,
    first_7 INTEGER NOT NULL,
    first_8 INTEGER NOT NULL,
    first_9 INTEGER NOT NULL,
    first_10 INTEGER NOT NULL,
    first_11 INTEGER NOT NULL,
    first_12 INTEGER NOT NULL,
    first_13 INTEGER NOT NULL,
    first_14 INTEGER NOT NULL,
    first_15 INTEGER NOT NULL,
    first_16 INTEGER NOT NULL,
    first_17 INTEGER NOT NULL,
    first_18 INTEGER NOT NULL,
    first_19 INTEGER NOT NULL,
    first_20 INTEGER NOT NULL,
    first_21 INTEGER NOT NULL,
    first_22 INTEGER NOT NULL,
    first_23 INTEGER NOT NULL,
    first_24 INTEGER NOT NULL,
    first_25 INTEGER NOT NULL,
    first_26 INTEGER NOT NULL,
    first_27 INTEGER NOT NULL,
    first_28 INTEGER NOT NULL,
    first_29 INTEGER NOT NULL,
    first_30 INTEGER NOT NULL,
    first_31 INTEGER NOT NULL,
    duration_0 INTEGER NOT NULL,
    duration_1 INTEGER NOT NULL,
    duration_2 INTEGER NOT NULL,
    duration_3 INTEGER NOT NULL,
    duration_4 INTEGER NOT NULL,
    duration_5 INTEGER NOT NULL,
    duration_6 INTEGER NOT NULL,
    duration_7 INTEGER NOT NULL,
    duration_8 INTEGER NOT NULL,
    duration_9 INTEGER NOT NULL,
    duration_10 INTEGER NOT NULL,
    duration_11 INTEGER NOT NULL,
    duration_12 INTEGER NOT NULL,
    duration_13 INTEGER NOT NULL,
    duration_14 INTEGER NOT NULL,
    duration_15 INTEGER NOT NULL,
    duration_16 INTEGER NOT NULL,
    duration_17 INTEGER NOT NULL,
    duration_18 INTEGER NOT NULL,
    duration_19 INTEGER NOT NULL,
    duration_20 INTEGER NOT NULL,
    duration_21 INTEGER NOT NULL,
    duration_22 INTEGER NOT NULL,
    duration_23 INTEGER NOT NULL,
    duration_24 INTEGER NOT NULL,
    duration_25 INTEGER NOT NULL,
    duration_26 INTEGER NOT NULL,
    duration_27 INTEGER NOT NULL,
    duration_28 INTEGER NOT NULL,
    duration_29 INTEGER NOT NULL,
    duration_30 INTEGER NOT NULL,
    duration_31 INTEGER NOT NULL,
    PRIMARY KEY (organization, hour, project, caller, model, code)
) STRICT, WITHOUT ROWID;

-- The time since which all calls are logged; no row while the log is off.
CREATE TABLE call_log_since (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    since INTEGER NOT NULL
) STRICT;
