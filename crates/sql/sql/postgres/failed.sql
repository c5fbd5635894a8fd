-- Notes why rows can never be applied: [[id, reason], ..].
UPDATE public.bellwether_changes AS changes SET failure = failed.pair ->> 1
FROM json_array_elements($1::text::json) AS failed (pair) WHERE changes.id = (failed.pair ->> 0)::bigint
