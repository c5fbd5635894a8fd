-- Notes that the rows of these ids, which this transaction has taken, were applied. By the key, it meets no others.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id bigint PATH '$')) AS ids
STRAIGHT_JOIN bellwether_changes AS changes FORCE INDEX (PRIMARY) ON changes.id = ids.id
SET changes.applied_at = CURRENT_TIMESTAMP(6)
