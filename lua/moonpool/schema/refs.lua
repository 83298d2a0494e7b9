-- Resolves `$ref` and `$dynamicRef` to nodes or boolean schemas, before anything is compiled.
local failure = require "moonpool.schema.failure"
local library = require "moonpool.schema.library"
local value = require "moonpool.schema.value"
local uris = require "moonpool.runtime.uris"

local fault, kind_of = failure.fault, value.kind_of

local refs = {}

-- The scope with this URI, if the compilation has it.
local function scope_at(books, address)
  local scope = books.scopes[address]
  if scope then return scope end
  local schema = books.resources[address]
  if schema == nil then schema = books.resources[address .. "#"] end
  if schema == nil and address:find "^https?://json%-schema%.org/" then
    schema = require "moonpool.schema.meta"[address]
  end
  if schema == nil then return nil end
  return books:open(schema, address, address .. "#", nil, 1)
end

local function step(found, token)
  if type(found) ~= "table" then return nil end
  if kind_of(found) == "array" then
    return token:find "^%d+$" and found[tonumber(token) + 1]
  end
  return found[token]
end

-- Follows a JSON pointer through the raw schema; it may lead to a place where no keyword expects a schema.
local function at_pointer(books, scope, pointer, where)
  local found, depth = scope.root, 1
  for token in pointer:gmatch "/([^/]*)" do
    found = step(found, (token:gsub("~1", "/"):gsub("~0", "~")))
    scope = found and scope.embedded[found] or scope
    depth = depth + 1
  end
  if found == nil then fault(where, "the reference points at nothing") end
  books:scan(found, scope, scope.where .. pointer, depth)
  return library.node_of(found, scope)
end

local function target_of(books, node, keyword)
  local reference, where = node.schema[keyword], node.where .. "/" .. keyword
  local head, fragment = uris.cut(reference)
  local scope = scope_at(books, uris.join(node.scope.base, head))
  if not scope then
    fault(where, "%q is not part of this schema, and schemas are never fetched", reference)
  end
  fragment = fragment:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  if fragment == "" then return library.node_of(scope.root, scope), scope end
  if fragment:sub(1, 1) == "/" then return at_pointer(books, scope, fragment, where), scope end
  local target = scope.anchors[fragment]
  if not target then fault(where, "there is no anchor %q", fragment) end
  return target, scope, fragment
end

-- Finds the targets of all references, also of references in resources that other references load. A `$dynamicRef`
-- whose target is a `$dynamicAnchor` also records its name: when it is followed, it leads to the outermost schema with
-- that name.
function refs.resolve(books)
  while #books.pending > 0 do
    local reference = table.remove(books.pending)
    local node, keyword = reference.node, reference.keyword
    local target, scope, anchor = target_of(books, node, keyword)
    node.refs[keyword] = target
    if keyword == "$dynamicRef" and anchor and scope.dynamic[anchor] == target then
      node.dynamic_name = anchor
    end
  end
end

return refs
