-- Notes that the rows of these ids were applied, but for those that another transaction holds.
UPDATE bellwether_changes AS changes JOIN (
    SELECT held.id FROM JSON_TABLE(?, '$[*]' COLUMNS (id bigint PATH '$')) AS ids
    STRAIGHT_JOIN bellwether_changes AS held ON held.id = ids.id
    WHERE held.applied_at IS NULL FOR UPDATE SKIP LOCKED) AS free ON free.id = changes.id
SET changes.applied_at = CURRENT_TIMESTAMP(6)
