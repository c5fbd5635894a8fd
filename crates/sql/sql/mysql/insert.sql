-- Writes rows: [[target, name, parts, expire_ms], ..]. No message wakes a follower.
INSERT INTO bellwether_changes (target, name, parts, expire_ms)
SELECT target, name, parts, expire_ms
FROM JSON_TABLE(?, '$[*]' COLUMNS (target varchar(3) PATH '$[0]', name varchar(255) CHARACTER SET utf8mb4 PATH '$[1]',
    parts longtext CHARACTER SET utf8mb4 PATH '$[2]', expire_ms bigint PATH '$[3]')) AS made
WHERE ? IS NOT NULL
