-- How many rows wait, counted up to 10,000, and the age of the oldest in seconds.
SELECT CAST(JSON_ARRAY(COUNT(*),
    COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(made_at), CURRENT_TIMESTAMP(6)) / 1000000, 0)) AS CHAR)
FROM (SELECT made_at FROM bellwether_changes WHERE state IN (0, 1) LIMIT 10000) AS first
