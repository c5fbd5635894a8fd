-- As `applied`, but of rows that nobody holds.
UPDATE public.bellwether_changes SET applied_at = clock_timestamp()
WHERE id = ANY(ARRAY(
    SELECT id FROM public.bellwether_changes
    WHERE id = ANY(string_to_array($1::text, ',')::bigint[]) AND applied_at IS NULL FOR UPDATE SKIP LOCKED))
