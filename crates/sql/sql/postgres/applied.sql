-- Notes that the rows of these ids were applied.
UPDATE public.bellwether_changes SET applied_at = clock_timestamp()
WHERE id = ANY(string_to_array($1::text, ',')::bigint[])
