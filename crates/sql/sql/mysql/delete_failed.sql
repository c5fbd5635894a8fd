-- Deletes some of the rows that have failed for a week.
DELETE changes FROM (
    SELECT id FROM bellwether_changes
    WHERE state = 2 AND made_at < CURRENT_TIMESTAMP(6) - INTERVAL 7 DAY ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED) AS old
STRAIGHT_JOIN bellwether_changes AS changes FORCE INDEX (PRIMARY) ON changes.id = old.id
