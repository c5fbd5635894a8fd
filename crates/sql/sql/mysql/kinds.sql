-- The kinds of keys that names stand for.
SELECT CAST(JSON_ARRAY(name, kind) AS CHAR) FROM bellwether_caches
