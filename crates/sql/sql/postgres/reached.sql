-- Notes which stores have the rows of these ids.
UPDATE public.bellwether_changes SET reached = $2::text WHERE id = ANY(string_to_array($1::text, ',')::bigint[])
