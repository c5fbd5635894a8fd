-- The server's time so many milliseconds ago.
SELECT CAST(CURRENT_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND AS CHAR)
