-- Notes that the rows of these ids, which this transaction has taken, were applied.
UPDATE public.bellwether_changes SET applied_at = clock_timestamp()
WHERE id = ANY(ARRAY(SELECT json_array_elements_text($1::text::json)::bigint))
