-- Says that names stand for kinds: [[name, kind], ..].
INSERT INTO public.bellwether_caches (name, kind)
SELECT DISTINCT pair ->> 0, pair ->> 1 FROM json_array_elements($1::text::json) AS pair ORDER BY 1, 2
ON CONFLICT (name, kind) DO UPDATE SET seen_at = clock_timestamp()
