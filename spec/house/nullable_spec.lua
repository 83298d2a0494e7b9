-- A member of a struct whose comment says that it may be NULL is MP_NULLABLE (core/base/nullable.h): `./dev lint` finds its unchecked uses.

local function lines_of(path)
  local list = {}
  for line in io.lines(path) do list[#list + 1] = line end
  return list
end

-- The comment of the member in line `at`: behind it, with the lines that follow, or above it.
local function comment_of(lines, at)
  local text = lines[at]:match "/%*.*$"
  if text then
    while not text:find("*/", 1, true) and lines[at + 1] do
      at = at + 1
      text = text .. " " .. lines[at]
    end
    return text
  end
  local first = at - 1
  if not (lines[first] or ""):find "%*/%s*$" then return "" end
  while first > 1 and not lines[first]:find("/*", 1, true) do first = first - 1 end
  if not lines[first]:find "^%s*/%*" then return "" end
  return table.concat(lines, " ", first, at - 1)
end

-- True if the comment says that the pointer is NULL at times. Lists that end with NULL, and texts without bytes, are another matter.
local function says_null(comment)
  local rest = comment:gsub("ends? with NULL", ""):gsub("ptr ?=?=? NULL", ""):gsub("never NULL", ""):gsub("a NULL path", "")
  return rest:find "%f[%w]NULL%f[%W]" ~= nil
end

local function unmarked(path)
  local found, lines, is_struct = {}, lines_of(path), false
  for i, line in ipairs(lines) do
    if line:find "^typedef struct[^;]*{" or line:find "^struct[^;]*{" then is_struct = true end
    if line:find "^}" then is_struct = false end
    local code = line:gsub("/%*.*$", "")
    local is_member = is_struct and (code:find "^%s+[%w_ ]+%*.*;" or code:find "^%s+[%w_ ]+%(%*")
    if is_member and not code:find("MP_NULLABLE", 1, true) and says_null(comment_of(lines, i)) then
      found[#found + 1] = ("%s:%d: %s"):format(path, i, line:match "^%s*(.-)%s*$")
    end
  end
  return found
end

describe("a member that may be NULL by its comment", function()
  it("is MP_NULLABLE", function()
    local found = {}
    for path in io.popen("find core -name '*.[ch]' | sort"):lines() do
      for _, member in ipairs(unmarked(path)) do found[#found + 1] = member end
    end
    assert.equal("", table.concat(found, "\n"))
  end)
end)

describe("the copy that lint reads", function()
  local nullable = require "spec.helpers.nullable"
  local folder = os.tmpname()
  os.remove(folder)
  os.execute(("mkdir -p '%s/core'"):format(folder))

  lazy_teardown(function() os.execute(("rm -rf '%s'"):format(folder)) end)

  local head = [[
#define MP_NULLABLE _Nullable
struct it { int x; struct it *MP_NULLABLE next; void (*MP_NULLABLE done)(struct it *it); };
struct it *MP_NULLABLE find(int x);
int use(struct it *it);
]]

  local function analyzed(body)
    local source = folder .. "/it.c"
    local file <close> = assert(io.open(source, "w"))
    file:write(nullable.rewrite("it.c", head .. body, { next = true, done = true }))
    file:close()
    local checks = "core.NullDereference,nullability"
    local pipe <close> = assert(io.popen(("cd '%s' && clang --analyze --analyzer-no-default-checks -std=gnu11 -Xclang -analyzer-checker=%s it.c 2>&1")
      :format(folder, checks)))
    return pipe:read "a"
  end

  for name, body in pairs {
    ["a member that is dereferenced"] = "int f(struct it *a) { return a->next->x; }",
    ["a member that is passed on"] = "int f(struct it *a) { return use(a->next); }",
    ["a member that is called"] = "void f(struct it *a) { a->done(a); }",
    ["a result"] = "int f(void) { return find(1)->x; }",
    ["a parameter"] = "int f(struct it *MP_NULLABLE a) { return a->x; }",
    ["a function that returns NULL without the mark"] = "struct it *f(int x) { return x ? find(x) : 0; }",
  } do
    it("shows a use without a check: " .. name, function() assert.matches("warning: Null", analyzed(body)) end)
  end

  for name, body in pairs {
    ["of a member"] = "int f(struct it *a) { if (!a->next) return 1; return a->next->x + use(a->next); }",
    ["of a callback"] = "void f(struct it *a) { if (a->done) a->done(a); }",
    ["of a parameter"] = "int f(struct it *MP_NULLABLE a) { return a ? a->x : 0; }",
    ["of a result"] = "int f(void) { struct it *a = find(1); return a ? use(a) : 0; }",
  } do
    it("lets a check pass: " .. name, function() assert.equal("", analyzed(body)) end)
  end
end)
