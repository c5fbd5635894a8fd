-- Deletes some of the rows that were applied so many milliseconds ago.
DELETE changes FROM (
    SELECT id FROM bellwether_changes WHERE applied_at < CURRENT_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    ORDER BY applied_at LIMIT ? FOR UPDATE SKIP LOCKED) AS old
STRAIGHT_JOIN bellwether_changes AS changes FORCE INDEX (PRIMARY) ON changes.id = old.id
