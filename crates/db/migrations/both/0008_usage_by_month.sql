-- What a key and a project ever used is added up from the months that are still open; what lies before is kept in memory. So
-- their rows are found by the month in which they are billed. These columns never change: adding to a row leaves the indexes
-- alone, and only a new one (the first use of a key and model on a day) is written to them.
CREATE INDEX usage_daily_api_key_id_month ON usage_daily (api_key_id, month);
CREATE INDEX usage_daily_project_month ON usage_daily (organization_id, project_id, month);
-- Only the sum of a key's whole life went by this one, and servers of an earlier version find its rows by the first of the two.
DROP INDEX usage_daily_api_key_id_day;
