-- Deletes some of the rows that were applied so many milliseconds ago.
DELETE FROM public.bellwether_changes WHERE id = ANY(ARRAY(
    SELECT id FROM public.bellwether_changes
    WHERE applied_at < statement_timestamp() - $1::bigint * interval '1 millisecond'
    ORDER BY applied_at LIMIT $2 FOR UPDATE SKIP LOCKED))
