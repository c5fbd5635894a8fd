-- Says that names stand for kinds: [[name, kind], ..].
INSERT INTO bellwether_caches (name, kind)
SELECT DISTINCT name, kind
FROM JSON_TABLE(?, '$[*]' COLUMNS (name varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', kind varchar(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS pairs
ORDER BY name, kind
ON DUPLICATE KEY UPDATE seen_at = CURRENT_TIMESTAMP(6)
