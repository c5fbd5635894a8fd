-- Forgets what no follower has said for a day.
DELETE FROM public.bellwether_caches WHERE (name, kind) IN (
    SELECT name, kind FROM public.bellwether_caches
    WHERE seen_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED)
