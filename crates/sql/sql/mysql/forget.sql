-- Forgets what no follower has said for a day. By the key, and without a wait: several say it at once.
DELETE caches FROM (
    SELECT name, kind FROM bellwether_caches
    WHERE seen_at < CURRENT_TIMESTAMP(6) - INTERVAL 1 DAY FOR UPDATE SKIP LOCKED) AS old
STRAIGHT_JOIN bellwether_caches AS caches FORCE INDEX (PRIMARY) ON caches.name = old.name AND caches.kind = old.kind
