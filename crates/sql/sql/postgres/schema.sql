-- bellwether 1: a table of changes that followers apply to the cache, and functions and triggers that fill it.
--
-- It may be run again, and leaves what is there. For another schema, replace every `public.` by its name.
-- Roles that change data by these triggers need no rights here. To call the functions, a role needs INSERT on
-- `bellwether_changes`; a follower needs SELECT, INSERT, UPDATE and DELETE on both tables.

-- Two at once would make the same table.
SELECT pg_advisory_xact_lock(hashtext('bellwether'));

-- Wakes the followers. A transaction sends one message, however often this is called. PostgreSQL lets
-- transactions with a message commit one after the other: `ALTER DATABASE ... SET bellwether.notify = off` sends
-- none, and followers find the rows by reading.
CREATE OR REPLACE FUNCTION public.bellwether_wake() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('bellwether_changes', TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;

-- What is there is left alone: to lock the table would wait for each writer, and others would wait for that.
DO $make$ BEGIN
    IF to_regclass('public.bellwether_changes') IS NOT NULL THEN RETURN; END IF;
    CREATE TABLE public.bellwether_changes (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        -- 'key', 'tag', or 'all': what clearable caches hold.
        target text NOT NULL CHECK (target IN ('key', 'tag', 'all')),
        -- The name of the cache, or the kind of the tag.
        name text NOT NULL,
        -- The parts of the key, as bellwether_part gives them.
        parts jsonb NOT NULL CHECK (jsonb_typeof(parts) = 'array'),
        -- NULL invalidates. Else the entries become stale over so many milliseconds.
        expire_ms bigint CHECK (expire_ms >= 0),
        made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        -- The stores that have it, by their places, while others do not.
        reached text NOT NULL DEFAULT '',
        applied_at timestamptz,
        -- Why it can never be applied.
        failure text
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
    COMMENT ON TABLE public.bellwether_changes IS 'bellwether 1';
    CREATE INDEX bellwether_changes_pending
        ON public.bellwether_changes (least(length(reached), 1), id) WHERE applied_at IS NULL AND failure IS NULL;
    CREATE INDEX bellwether_changes_applied
        ON public.bellwether_changes (applied_at, id) WHERE applied_at IS NOT NULL;
    CREATE INDEX bellwether_changes_failed
        ON public.bellwether_changes (made_at) WHERE failure IS NOT NULL;
    CREATE TRIGGER bellwether_wake AFTER INSERT ON public.bellwether_changes
        FOR EACH STATEMENT WHEN (current_setting('bellwether.notify', true) IS DISTINCT FROM 'off')
        EXECUTE FUNCTION public.bellwether_wake();
END $make$;

-- The kinds of keys that a name stands for, of all followers: a cache of another version has another kind.
CREATE TABLE IF NOT EXISTS public.bellwether_caches (
    name text,
    kind text,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, kind)
);

-- A value as a part of a key. It is the part that a program makes of the same value.
CREATE OR REPLACE FUNCTION public.bellwether_part(value anyelement) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    type oid := pg_typeof(value);
    base oid;
BEGIN
    IF type IN ('int8'::regtype, 'int4'::regtype, 'int2'::regtype, 'text'::regtype, 'varchar'::regtype,
                'bool'::regtype) THEN
        RETURN coalesce(to_jsonb(value), 'null');
    END IF;
    LOOP
        SELECT typbasetype INTO base FROM pg_type WHERE oid = type;
        EXIT WHEN coalesce(base, 0) = 0;
        type := base;
    END LOOP;
    IF NOT (type IN ('numeric'::regtype, 'uuid'::regtype, 'bytea'::regtype, 'jsonb'::regtype, 'int8'::regtype,
                     'int4'::regtype, 'int2'::regtype)
            OR (SELECT typcategory IN ('S', 'E', 'B') FROM pg_type WHERE oid = type)) THEN
        RAISE EXCEPTION 'a value of type % cannot be a part of a key', format_type(type, NULL)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Cast it to the type that the key has in the program.';
    ELSIF value IS NULL THEN
        RETURN 'null';
    ELSIF type = 'uuid'::regtype THEN
        RETURN jsonb_build_object('uuid', value);
    ELSIF type = 'bytea'::regtype THEN
        RETURN jsonb_build_object('bytes', encode(value::text::bytea, 'hex'));
    ELSIF type = 'numeric'::regtype THEN
        IF value::text::numeric <> trunc(value::text::numeric) OR value::text::numeric NOT BETWEEN
            -170141183460469231731687303715884105728 AND 340282366920938463463374607431768211455 THEN
            RAISE EXCEPTION 'the number % cannot be a part of a key', value
                USING ERRCODE = 'numeric_value_out_of_range', HINT = 'Parts are whole numbers of up to 128 bits.';
        ELSIF value::text::numeric NOT BETWEEN -9223372036854775808 AND 18446744073709551615 THEN
            RETURN jsonb_build_object('number', trunc(value::text::numeric)::text);
        END IF;
        RETURN to_jsonb(trunc(value::text::numeric));
    END IF;
    RETURN to_jsonb(value);
END $$;

-- The parts of a key: of a jsonb array its elements, and else this one value.
CREATE OR REPLACE FUNCTION public.bellwether_parts(value anyelement) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    parts jsonb := public.bellwether_part(value);
BEGIN
    IF pg_typeof(value) <> 'jsonb'::regtype THEN
        RETURN jsonb_build_array(parts);
    ELSIF jsonb_typeof(parts) <> 'array' THEN
        parts := jsonb_build_array(parts);
    END IF;
    RETURN coalesce((
        SELECT jsonb_agg(CASE jsonb_typeof(part)
            WHEN 'number' THEN public.bellwether_part((part #>> '{}')::numeric) ELSE part END ORDER BY at)
        FROM jsonb_array_elements(parts) WITH ORDINALITY AS all_parts (part, at)), '[]');
END $$;

-- Each is of one key or tag, in the transaction of the caller. Several parts are
-- `jsonb_build_array('berlin', 42)`, with bellwether_part around what JSON has no type for.
CREATE OR REPLACE FUNCTION public.bellwether_invalidate(cache text, key anyelement) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.bellwether_changes (target, name, parts) VALUES ('key', cache, public.bellwether_parts(key))
$$;
CREATE OR REPLACE FUNCTION public.bellwether_expire(cache text, key anyelement) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.bellwether_changes (target, name, parts, expire_ms)
    VALUES ('key', cache, public.bellwether_parts(key), 0)
$$;
CREATE OR REPLACE FUNCTION public.bellwether_invalidate_tag(tag text, key anyelement) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.bellwether_changes (target, name, parts) VALUES ('tag', tag, public.bellwether_parts(key))
$$;
CREATE OR REPLACE FUNCTION public.bellwether_expire_tag(tag text, key anyelement, over interval DEFAULT '0')
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.bellwether_changes (target, name, parts, expire_ms)
    VALUES ('tag', tag, public.bellwether_parts(key), (extract(epoch FROM over) * 1000)::bigint)
$$;

-- A literal without a type is text.
CREATE OR REPLACE FUNCTION public.bellwether_invalidate(cache text, key text) RETURNS void
LANGUAGE sql AS $$ SELECT public.bellwether_invalidate(cache, jsonb_build_array(key)) $$;
CREATE OR REPLACE FUNCTION public.bellwether_expire(cache text, key text) RETURNS void
LANGUAGE sql AS $$ SELECT public.bellwether_expire(cache, jsonb_build_array(key)) $$;
CREATE OR REPLACE FUNCTION public.bellwether_invalidate_tag(tag text, key text) RETURNS void
LANGUAGE sql AS $$ SELECT public.bellwether_invalidate_tag(tag, jsonb_build_array(key)) $$;
CREATE OR REPLACE FUNCTION public.bellwether_expire_tag(tag text, key text, over interval DEFAULT '0')
RETURNS void LANGUAGE sql AS $$ SELECT public.bellwether_expire_tag(tag, jsonb_build_array(key), over) $$;

-- Invalidates all that clearable caches hold.
CREATE OR REPLACE FUNCTION public.bellwether_clear() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.bellwether_changes (target, name, parts) VALUES ('all', '', '[]')
$$;

-- For triggers FOR EACH ROW: bellwether_changed('key', 'item', 'id') records, of a row that has changed, the old and the
-- new key in the cache `item`; ('tag', 'shelf', 'shelf_id') a tag. Several columns are the parts, in this order.
-- BEFORE TRUNCATE FOR EACH STATEMENT, all rows have changed.
CREATE OR REPLACE FUNCTION public.bellwether_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text;
    parts text;
    source text;
BEGIN
    SELECT string_agg(quote_ident(name), ', ' ORDER BY at),
           string_agg(format('public.bellwether_part(changed.%I)', name), ', ' ORDER BY at)
        INTO names, parts FROM unnest(TG_ARGV[2:]) WITH ORDINALITY AS named (name, at);
    source := CASE TG_OP WHEN 'INSERT' THEN 'SELECT ($2).*' WHEN 'DELETE' THEN 'SELECT ($1).*'
        WHEN 'TRUNCATE' THEN format('SELECT DISTINCT %s FROM %I.%I', names, TG_TABLE_SCHEMA, TG_TABLE_NAME)
        ELSE format('SELECT %s FROM (SELECT ($1).*) AS old UNION SELECT %1$s FROM (SELECT ($2).*) AS new', names) END;
    EXECUTE format('INSERT INTO public.bellwether_changes (target, name, parts) SELECT %L, %L, '
        'jsonb_build_array(%s) FROM (%s) AS changed', TG_ARGV[0], TG_ARGV[1], parts, source)
        USING CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN OLD END, CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN NEW END;
    RETURN NULL;
END $$;

-- Makes the triggers of a table, for each statement: bellwether_watch('items', 'key', 'item', 'id'). What follows
-- the table is what bellwether_changed takes. A statement records one row for each distinct key that it changes, old
-- and new. With ('items', 'key', 'item', 'id', '>1000', 'items'), one that changes more than 1000 keys records the tag
-- `items` instead.
--
-- With other columns, it adds triggers. They call a function of their own, whose statements are planned once for each
-- session. It writes with the rights of the role that has called this. To end them, drop it with CASCADE.
CREATE OR REPLACE FUNCTION public.bellwether_watch(changed regclass, VARIADIC args text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    columns text[] := args[3:];
    above bigint;
    names text;
    parts text;
    source text;
    records text;
    body text := '';
    op text;
    digest text;
    function text;
BEGIN
    IF cardinality(args) < 3 OR args[1] NOT IN ('key', 'tag') THEN
        RAISE EXCEPTION 'bellwether_watch takes a table, ''key'' or ''tag'', a name, and columns';
    ELSIF NOT has_table_privilege('public.bellwether_changes', 'INSERT') THEN
        RAISE EXCEPTION 'permission denied for table bellwether_changes' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF cardinality(columns) > 2 AND columns[cardinality(columns) - 1] LIKE '>%' THEN
        above := substr(columns[cardinality(columns) - 1], 2);
        columns := columns[:cardinality(columns) - 2];
    END IF;
    SELECT string_agg(quote_ident(name), ', ' ORDER BY at),
           string_agg(format('public.bellwether_part(changed.%I)', name), ', ' ORDER BY at)
        INTO names, parts FROM unnest(columns) WITH ORDINALITY AS named (name, at);
    FOREACH op IN ARRAY ARRAY['insert', 'update', 'delete', 'truncate'] LOOP
        source := CASE op WHEN 'insert' THEN format('SELECT DISTINCT %s FROM new_rows', names)
            WHEN 'update' THEN format('SELECT %1$s FROM old_rows UNION SELECT %1$s FROM new_rows', names)
            WHEN 'delete' THEN format('SELECT DISTINCT %s FROM old_rows', names)
            ELSE format('SELECT DISTINCT %s FROM %s', names, changed) END;
        records := format('INSERT INTO public.bellwether_changes (target, name, parts) SELECT %L, %L, '
            'pg_catalog.jsonb_build_array(%s) FROM (%s) AS changed;', args[1], args[2], parts, source);
        IF above IS NOT NULL THEN
            records := format('IF (SELECT pg_catalog.count(*) > %s FROM (%s LIMIT %s) AS few) THEN '
                'INSERT INTO public.bellwether_changes (target, name, parts) VALUES (''tag'', %L, ''[]''); '
                'ELSE %s END IF;', above, source, above + 1, args[cardinality(args)], records);
        END IF;
        body := body || format('IF TG_OP = %L THEN %s END IF; ', upper(op), records);
    END LOOP;
    digest := md5((args[:2] || columns)::text);
    function := format('public.%I', format('bellwether_%s_%s', changed::oid, digest));
    EXECUTE format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', function, 'BEGIN ' || body || 'RETURN NULL; END');
    FOREACH op IN ARRAY ARRAY['insert', 'update', 'delete', 'truncate'] LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER %I %s %s ON %s %s FOR EACH STATEMENT EXECUTE FUNCTION %s()',
            format('bellwether_%s_%s_%s_%s', op, left(digest, 8), args[1], args[2]),
            CASE op WHEN 'truncate' THEN 'BEFORE' ELSE 'AFTER' END, op, changed,
            CASE op WHEN 'insert' THEN 'REFERENCING NEW TABLE AS new_rows'
                WHEN 'update' THEN 'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows'
                WHEN 'delete' THEN 'REFERENCING OLD TABLE AS old_rows' ELSE '' END, function);
    END LOOP;
END $$;
