-- Notes that the rows of these ids were applied, but for those that another transaction holds.
UPDATE public.bellwether_changes SET applied_at = clock_timestamp()
WHERE id = ANY(ARRAY(
    SELECT id FROM public.bellwether_changes
    WHERE id = ANY(ARRAY(SELECT json_array_elements_text($1::text::json)::bigint)) AND applied_at IS NULL FOR UPDATE SKIP LOCKED))
