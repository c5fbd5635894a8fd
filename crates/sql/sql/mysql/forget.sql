-- Forgets what no follower has said for a day.
DELETE FROM bellwether_caches WHERE seen_at < CURRENT_TIMESTAMP(6) - INTERVAL 1 DAY
