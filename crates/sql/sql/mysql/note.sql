-- Notes which stores have rows that others do not have yet, or why rows can never be applied: [{id, reached, failure}, ..].
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id bigint PATH '$.id', reached varchar(255) PATH '$.reached',
    failure text CHARACTER SET utf8mb4 PATH '$.failure')) AS notes
STRAIGHT_JOIN bellwether_changes AS changes FORCE INDEX (PRIMARY) ON changes.id = notes.id
SET changes.reached = COALESCE(notes.reached, changes.reached), changes.failure = notes.failure
