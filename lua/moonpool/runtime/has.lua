-- has(list, wanted): whether a list has an item; nil is a list without any.
return function(list, wanted)
  for _, item in ipairs(list or {}) do
    if item == wanted then return true end
  end
  return false
end
