-- Notes which stores have rows that others do not have yet, or why rows can never be applied: [{id, reached, failure}, ..].
UPDATE public.bellwether_changes AS changes
SET reached = coalesce(notes.reached, changes.reached), failure = notes.failure
FROM json_to_recordset($1::text::json) AS notes (id bigint, reached text, failure text)
WHERE changes.id = notes.id
