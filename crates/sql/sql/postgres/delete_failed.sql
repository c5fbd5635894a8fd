-- Deletes some of the rows that have failed for a week.
DELETE FROM public.bellwether_changes WHERE id = ANY(ARRAY(
    SELECT id FROM public.bellwether_changes
    WHERE failure IS NOT NULL AND made_at < statement_timestamp() - interval '7 days'
    ORDER BY made_at LIMIT 10000 FOR UPDATE SKIP LOCKED))
