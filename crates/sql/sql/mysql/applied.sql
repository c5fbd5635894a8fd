-- Notes that the rows of these ids were applied.
UPDATE JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (id bigint PATH '$')) AS ids
STRAIGHT_JOIN bellwether_changes AS changes ON changes.id = ids.id
SET changes.applied_at = CURRENT_TIMESTAMP(6)
