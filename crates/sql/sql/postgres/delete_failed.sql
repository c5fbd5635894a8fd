-- Deletes rows that have failed for a week.
DELETE FROM public.bellwether_changes WHERE failure IS NOT NULL AND made_at < clock_timestamp() - interval '7 days'
