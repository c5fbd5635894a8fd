-- Lets rows wait again that had failed for the lack of these names: [[name, kind], ..].
UPDATE bellwether_changes SET failure = NULL
WHERE state = 2 AND failure LIKE 'no follower%' AND name IN (
    SELECT name FROM JSON_TABLE(?, '$[*]' COLUMNS (name varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', kind varchar(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS pairs)
