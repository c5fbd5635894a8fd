-- Writes rows: [[target, name, parts, expire_ms], ..]. With a 1 they wake no follower.
WITH setting AS MATERIALIZED (SELECT CASE WHEN $2 = 1 THEN set_config('bellwether.notify', 'off', true) END)
INSERT INTO public.bellwether_changes (target, name, parts, expire_ms)
SELECT made ->> 0, made ->> 1, (made ->> 2)::jsonb, (made ->> 3)::bigint
FROM setting, json_array_elements($1::text::json) AS made
