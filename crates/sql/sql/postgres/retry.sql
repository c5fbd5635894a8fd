-- Lets rows wait again that had failed for the lack of these names: [[name, kind], ..].
UPDATE public.bellwether_changes SET failure = NULL
WHERE failure LIKE 'no follower%' AND name IN (SELECT pair ->> 0 FROM json_array_elements($1::text::json) AS pair)
