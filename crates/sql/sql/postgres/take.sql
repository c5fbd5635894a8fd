-- Locks pending rows above an id, oldest first: with a 1 those that some stores have, and else those that none has.
-- Rows that others hold are not among them. The time of the commit is known only to a server that tracks it.
SELECT json_build_array(id, target, name, parts::text, expire_ms, reached,
    coalesce((SELECT jsonb_object_agg(name, kinds) FROM (
        SELECT name, jsonb_agg(kind) AS kinds FROM public.bellwether_caches GROUP BY name) AS caches) -> name, '[]'),
    extract(epoch FROM clock_timestamp() - coalesce(CASE WHEN current_setting('track_commit_timestamp') = 'on'
        THEN pg_xact_commit_timestamp(xmin) END, made_at)), NULL)::text
FROM public.bellwether_changes
WHERE applied_at IS NULL AND failure IS NULL AND least(length(reached), 1) = $1 AND id > $2
ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
