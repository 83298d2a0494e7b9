-- Read-only values that the gateway gives to scripts. Each is an empty table; its content is in its metatable, which
-- scripts cannot reach: `__metatable` is false, and the raw functions of scripts refuse such a table (moonpool.raw).
--   kind     { name, what, tostring }: one table per kind of value. `what` names the value in the error for a write, `tostring` gets the content
--   visible  the fields that scripts read
--   content  what the gateway reads

local host = require "moonpool.host"

local frozen = {}

local metatable_of = debug.getmetatable

local function refuse(self) error(metatable_of(self).kind.what .. " cannot be changed", 2) end

local function to_text(self)
  local mt = metatable_of(self)
  return mt.kind.tostring(mt.content)
end

-- The iterator holds the content as an upvalue. With `next` as iterator, scripts would get the content as the
-- iterator's state.
local function members(self)
  local visible = metatable_of(self).__index
  return function(_, name) return next(visible, name) end, self, nil
end

local function length(self) return #metatable_of(self).__index end

--- A read-only value of `kind` with the fields of `visible`. Only the gateway reads `content`, by default `visible`.
function frozen.new(kind, visible, content)
  return setmetatable({}, {
    __index = visible, __newindex = refuse, __len = length, __pairs = members, __tostring = kind.tostring and to_text or nil,
    __name = kind.name, __metatable = false, __frozen = visible, kind = kind, content = content or visible,
  })
end

--- True if `value` is a frozen value of `kind`.
function frozen.is(value, kind)
  local mt = metatable_of(value)
  return type(mt) == "table" and rawget(mt, "kind") == kind
end

--- The content of a value that frozen.new returned.
function frozen.content(value) return metatable_of(value).content end

-- -- data ----------------------------------------------------------------------------------------------------------------

local data = { name = "moonpool.data" }

local function refuse_data(self) error(metatable_of(self).what .. " cannot be changed", 2) end

--- A read-only view of a table of JSON values; the tables inside it are views too, made when they are read. `what`
--- names the value in the error for a write. A value that is not a table is returned unchanged.
function frozen.view(of, what)
  if type(of) ~= "table" then return of end
  local views = {}
  local function member(name)
    local value = of[name]
    if type(value) ~= "table" then return value end
    local view = views[name]
    if not view then
      view = frozen.view(value, what)
      views[name] = view
    end
    return view
  end
  return setmetatable({}, {
    __index = function(_, name) return member(name) end, __newindex = refuse_data, __len = function() return #of end,
    __pairs = function(self)
      return function(_, name)
        local following = next(of, name)
        if following ~= nil then return following, member(following) end
      end, self, nil
    end,
    __name = data.name, __metatable = false, __frozen = of, kind = data, what = what,
  })
end

host.hooks.view = frozen.view        -- for the fields of `call`

--- Returns the table behind a view or a frozen value; returns any other value unchanged.
function frozen.behind(value)
  local mt = metatable_of(value)
  return type(mt) == "table" and rawget(mt, "kind") and rawget(mt, "__frozen") or value
end

return frozen
