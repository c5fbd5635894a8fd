-- The server's time so many milliseconds ago, and now.
SELECT json_build_array((clock_timestamp() - $1::bigint * interval '1 millisecond')::text, clock_timestamp()::text)::text
