-- Locks pending rows above an id, oldest first: with a 1 those that some stores have, and else those that none has.
-- Rows that others hold are not among them.
SELECT CAST(JSON_ARRAY(id, target, name, CAST(parts AS CHAR), expire_ms, reached,
    JSON_EXTRACT(COALESCE((SELECT JSON_ARRAYAGG(kind) FROM bellwether_caches AS caches WHERE caches.name = changes.name), '[]'), '$'),
    TIMESTAMPDIFF(MICROSECOND, made_at, CURRENT_TIMESTAMP(6)) / 1000000, NULL) AS CHAR)
FROM bellwether_changes AS changes WHERE state = ? AND id > ? ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED
