-- Rows that were applied after a time and an id, up to a time, in this order.
SELECT json_build_array(id, target, name, parts::text, expire_ms, '',
    coalesce((SELECT jsonb_object_agg(name, kinds) FROM (
        SELECT name, jsonb_agg(kind) AS kinds FROM public.bellwether_caches GROUP BY name) AS caches) -> name, '[]'),
    0, applied_at::text)::text
FROM public.bellwether_changes
WHERE (applied_at, id) > ($1::text::timestamptz, $2::bigint) AND applied_at <= $3::text::timestamptz
ORDER BY applied_at, id LIMIT $4
