-- How many rows wait, counted up to 10,000, and the age of the oldest in seconds.
SELECT json_build_array(count(*), coalesce(extract(epoch FROM clock_timestamp() - min(made_at)), 0))::text
FROM (SELECT made_at FROM public.bellwether_changes WHERE applied_at IS NULL AND failure IS NULL
    ORDER BY least(length(reached), 1), id LIMIT 10000) AS first
