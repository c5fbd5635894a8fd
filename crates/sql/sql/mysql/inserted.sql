-- The ids of the rows that this connection has just written.
SELECT CAST(id AS CHAR) FROM bellwether_changes WHERE id >= LAST_INSERT_ID() AND connection = CONNECTION_ID()
