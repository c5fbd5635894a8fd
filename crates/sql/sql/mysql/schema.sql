-- bellwether 1: a table of changes that followers apply to the cache, and procedures that fill it.
--
-- It may be run again, and leaves what is there. It needs MariaDB 10.6, or MySQL 8.0.29. Procedures and triggers write
-- with the rights of the account that has made them. To call the procedures, an account needs EXECUTE on them; to
-- record changes by a program, INSERT on bellwether_changes; a follower needs SELECT, INSERT, UPDATE and DELETE on both tables.

CREATE TABLE IF NOT EXISTS bellwether_changes (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- 'key', 'tag', or 'all': what clearable caches hold.
    target varchar(3) NOT NULL,
    -- The name of the cache, or the kind of the tag.
    name varchar(255) NOT NULL,
    -- The parts of the key: JSON_ARRAY(42).
    parts json NOT NULL,
    -- NULL invalidates. Else the entries become stale over so many milliseconds.
    expire_ms bigint NULL,
    made_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    -- The stores that have it, by their places, while others do not.
    reached varchar(255) NOT NULL DEFAULT '',
    applied_at timestamp(6) NULL DEFAULT NULL,
    -- Why it can never be applied.
    failure text NULL,
    -- 0 while no store has it, 1 while some have it, 2 if it has failed, and NULL once it was applied.
    state tinyint AS (IF(failure IS NOT NULL, 2, IF(applied_at IS NULL, reached <> '', NULL))) VIRTUAL,
    KEY bellwether_changes_state (state, id),
    KEY bellwether_changes_applied (applied_at, id),
    CONSTRAINT bellwether_target_is_key_tag_or_all CHECK (target IN ('key', 'tag', 'all')),
    CONSTRAINT bellwether_parts_are_a_json_array CHECK (JSON_TYPE(parts) = 'ARRAY'),
    CONSTRAINT bellwether_spread_is_not_negative CHECK (expire_ms >= 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'bellwether 1';

-- The kinds of keys that a name stands for, of all followers: a cache of another version has another kind.
CREATE TABLE IF NOT EXISTS bellwether_caches (
    name varchar(255) NOT NULL,
    kind varchar(255) NOT NULL,
    seen_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (name, kind)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Each is of one key or tag, whose parts are JSON_ARRAY(42) or JSON_ARRAY('berlin', 42), in the transaction of the caller.
CREATE PROCEDURE IF NOT EXISTS bellwether_invalidate(cache varchar(255) CHARACTER SET utf8mb4, key_parts json)
    INSERT INTO bellwether_changes (target, name, parts) VALUES ('key', cache, key_parts);
CREATE PROCEDURE IF NOT EXISTS bellwether_expire(cache varchar(255) CHARACTER SET utf8mb4, key_parts json)
    INSERT INTO bellwether_changes (target, name, parts, expire_ms) VALUES ('key', cache, key_parts, 0);
CREATE PROCEDURE IF NOT EXISTS bellwether_invalidate_tag(tag varchar(255) CHARACTER SET utf8mb4, tag_parts json)
    INSERT INTO bellwether_changes (target, name, parts) VALUES ('tag', tag, tag_parts);
CREATE PROCEDURE IF NOT EXISTS bellwether_expire_tag(
    tag varchar(255) CHARACTER SET utf8mb4, tag_parts json, over_seconds decimal(20, 3))
    INSERT INTO bellwether_changes (target, name, parts, expire_ms) VALUES ('tag', tag, tag_parts, over_seconds * 1000);

-- Invalidates all that clearable caches hold.
CREATE PROCEDURE IF NOT EXISTS bellwether_clear()
    INSERT INTO bellwether_changes (target, name, parts) VALUES ('all', '', '[]');

-- For triggers: records the old and the new key or tag of a row that has changed.
--
-- CREATE TRIGGER items_update AFTER UPDATE ON items FOR EACH ROW
--     CALL bellwether_changed('key', 'item', JSON_ARRAY(OLD.id), JSON_ARRAY(NEW.id));
--
-- AFTER INSERT, the old one is NULL; AFTER DELETE, the new one.
CREATE PROCEDURE IF NOT EXISTS bellwether_changed(
    target_type varchar(3) CHARACTER SET utf8mb4, name_of varchar(255) CHARACTER SET utf8mb4, old_parts json, new_parts json)
    INSERT INTO bellwether_changes (target, name, parts)
    SELECT target_type, name_of, changed.parts
    FROM (SELECT old_parts AS parts UNION SELECT new_parts) AS changed WHERE changed.parts IS NOT NULL;
