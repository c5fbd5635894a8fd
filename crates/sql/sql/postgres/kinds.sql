-- The kinds of keys that names stand for.
SELECT json_build_array(name, kind)::text FROM public.bellwether_caches
