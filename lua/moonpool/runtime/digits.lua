-- The texts of small numbers, from 0 to 99: a number that is put into a text is first made one, which takes longer than
-- all else. As in `"got " .. (digits[n] or n)`, where `n` is an integer.
local digits = {}

for i = 0, 99 do digits[i] = tostring(i) end

return digits
