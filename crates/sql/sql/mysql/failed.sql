-- Notes why rows can never be applied: [[id, reason], ..].
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id bigint PATH '$[0]', failure text CHARACTER SET utf8mb4 PATH '$[1]')) AS failed
STRAIGHT_JOIN bellwether_changes AS changes ON changes.id = failed.id
SET changes.failure = failed.failure
