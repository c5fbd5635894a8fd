-- Rows that were applied after a time and an id, up to a time, in this order.
SELECT CAST(JSON_ARRAY(changes.id, target, changes.name, CAST(parts AS CHAR), expire_ms, '',
    JSON_EXTRACT(COALESCE((SELECT JSON_ARRAYAGG(kind) FROM bellwether_caches AS caches WHERE caches.name = changes.name), '[]'), '$'),
    0, CAST(applied_at AS CHAR)) AS CHAR)
FROM bellwether_changes AS changes,
    (SELECT CAST(? AS datetime(6)) AS time, ? AS id, CAST(? AS datetime(6)) AS until) AS since
WHERE applied_at >= since.time AND (applied_at > since.time OR changes.id > since.id) AND applied_at <= since.until
ORDER BY applied_at, changes.id LIMIT ?
