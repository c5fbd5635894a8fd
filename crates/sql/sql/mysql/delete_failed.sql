-- Deletes rows that have failed for a week.
DELETE FROM bellwether_changes WHERE state = 2 AND made_at < CURRENT_TIMESTAMP(6) - INTERVAL 7 DAY
