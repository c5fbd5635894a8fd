-- The server's time so many milliseconds ago.
SELECT (clock_timestamp() - $1::bigint * interval '1 millisecond')::text
