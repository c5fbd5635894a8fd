-- Deletes some of the rows that were applied so many milliseconds ago.
DELETE changes FROM bellwether_changes AS changes JOIN (
    SELECT id FROM bellwether_changes WHERE applied_at < CURRENT_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    ORDER BY applied_at LIMIT ? FOR UPDATE SKIP LOCKED) AS old ON old.id = changes.id
