-- As `applied`, but of rows that nobody holds.
UPDATE bellwether_changes AS changes JOIN (
    SELECT held.id FROM JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (id bigint PATH '$')) AS ids
    STRAIGHT_JOIN bellwether_changes AS held ON held.id = ids.id
    WHERE held.applied_at IS NULL FOR UPDATE SKIP LOCKED) AS free ON free.id = changes.id
SET changes.applied_at = CURRENT_TIMESTAMP(6)
