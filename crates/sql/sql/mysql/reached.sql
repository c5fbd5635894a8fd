-- Notes which stores have the rows of these ids.
UPDATE JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (id bigint PATH '$')) AS ids
STRAIGHT_JOIN bellwether_changes AS changes ON changes.id = ids.id
SET changes.reached = ?
