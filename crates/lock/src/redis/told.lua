-- told: the last part of release.lua and release_many.lua, for locks at which processes have left marks.
-- The prelude of all protocols stands before it, so that the common case ends before that.
for name, held in pairs(marked) do tell(name, string.sub(held, 33)) end
return released
