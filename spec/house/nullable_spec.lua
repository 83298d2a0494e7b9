-- A pointer is MP_NULLABLE (core/base/nullable.h) if its comment says that it may be NULL, or if the code compares it
-- with NULL, sets it to NULL or returns it as NULL. `./dev lint` finds unchecked uses of such pointers.
local nullable = require "spec.helpers.nullable"
local rules = require "spec.helpers.null_rules"

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

-- True if the comment says that the pointer is NULL at times. Lists that end with NULL, and texts without bytes, are
-- another matter.
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

local all
local function sources()
  if all then return all end
  local list = {}
  for path in io.popen("find core -name '*.[ch]' -not -path '*/klib/*' | sort"):lines() do
    local file <close> = assert(io.open(path))
    local text = file:read "a"
    list[#list + 1] = { path = path, text = text, tokens = nullable.tokens(text) }
  end
  all = list
  return list
end

-- What a rule finds in all sources, one a line.
local function findings(rule)
  local found = {}
  for _, source in ipairs(sources()) do
    for _, line in ipairs(rule(source)) do found[#found + 1] = line end
  end
  return table.concat(found, "\n")
end

describe("a function, a parameter or a variable that may be NULL by its comment", function()
  it("is MP_NULLABLE", function()
    assert.equal("", findings(function(source) return rules.unmarked(source.path, source.text) end))
  end)

  for name, text in pairs {
    ["a result"] = "/* The next one; NULL: there is none. */\nstruct it *find(int x);",
    ["a result of a static function"] = "/* Returns NULL if there is none. */\nstatic struct it *find(int x)\n{\n    return 0;\n}",
    ["a parameter"] = "/* Ends it. `it` may be NULL. */\nvoid finish(struct it *it);",
    ["a parameter of several"] = "/* `b` may be NULL. */\nvoid join(struct it *MP_NULLABLE a, struct it *b);",
    ["a parameter that is said to be NULL for a purpose"] = "/* Watches `it`; NULL ends that. */\nvoid watch(struct it *it);",
    ["a comment behind the declaration"] = "void drop(struct it *it); /* NULL is allowed */",
    ["a callback"] = "/* `done` NULL: nobody waits. */\nvoid start(void (*done)(void *ctx), int x);",
    ["the context of a callback"] = "/* `ctx` may be NULL. */\nvoid start(void (*done)(void *ctx), void *ctx);",
    ["the type of a callback"] = "/* `it` is NULL at the end. */\ntypedef void (*told)(void *ctx, struct it *it);",
    ["a pointer to a pointer"] = "/* Sets `*at` to its place, or to NULL. */\nint seek(const char **at);",
    ["a static variable"] = "static struct it *last; /* NULL: none */",
    ["a static variable of a function"] = "int f(void)\n{\n    static struct it *last; /* NULL: none */\n    return 0;\n}",
  } do
    it("is found: " .. name, function() assert.equal(1, #rules.unmarked("it.h", text)) end)
  end

  for name, text in pairs {
    ["a result with the mark"] = "/* NULL: there is none. */\nstruct it *MP_NULLABLE find(int x);",
    ["a parameter with the mark"] = "/* `b` may be NULL. */\nvoid join(struct it *a, struct it *MP_NULLABLE b);",
    ["a list that ends with NULL"] = "/* `list` ends with NULL. */\nvoid all(char **list);",
    ["a text without bytes"] = "/* The value; ptr == NULL if absent. */\nmp_str value(const struct it *it);",
    ["what is never NULL"] = "/* Never NULL. */\nstruct it *find(int x);",
    ["a variable of a function"] = "int f(void)\n{\n    struct it *last; /* NULL: none */\n    return 0;\n}",
    ["a number"] = "/* 0 where the pointer is NULL. */\nint count(int x);",
  } do
    it("passes: " .. name, function() assert.same({}, rules.unmarked("it.h", text)) end)
  end
end)

describe("a pointer that is compared with NULL, or a member that is set to it", function()
  it("is MP_NULLABLE", function()
    local marked = {}
    for _, source in ipairs(sources()) do nullable.collect(source.tokens, marked) end
    assert.equal("", findings(function(source) return rules.compared(source.path, source.tokens, marked) end))
  end)

  for name, text in pairs {
    ["a parameter"] = "int f(struct it *a) { return a == NULL; }",
    ["a callback"] = "void f(void (*done)(void *ctx)) { if (done != NULL) done(0); }",
    ["a member"] = "int f(struct at *a) { return a->here != NULL; }",
    ["a member that is set"] = "void f(struct at *a) { a->here = NULL; }",
    ["a static variable"] = "static struct it *last;\nint f(void) { return last == NULL; }",
  } do
    it("is found without the mark: " .. name, function() assert.equal(1, #rules.compared("it.c", nullable.tokens(text), {})) end)
  end

  for name, text in pairs {
    ["a parameter with the mark"] = "int f(struct it *MP_NULLABLE a) { return a == NULL; }",
    ["a parameter that is assigned"] = "int f(struct it *a) { a = find(1); return a == NULL; }",
    ["a callback with the mark"] = "void f(void (*MP_NULLABLE done)(void *ctx)) { if (done != NULL) done(0); }",
    ["a member with the mark"] = "int f(struct at *a) { return a->next != NULL; }",
    ["a variable"] = "int f(int x) { struct it *a = find(x); return a == NULL; }",
  } do
    it("passes: " .. name, function() assert.same({}, rules.compared("it.c", nullable.tokens(text), { next = true })) end)
  end
end)

describe("a function that returns NULL", function()
  it("has a result that is MP_NULLABLE", function()
    assert.equal("", findings(function(source) return rules.returned(source.path, source.tokens) end))
  end)

  it("is found without the mark", function()
    assert.equal(1, #rules.returned("it.c", nullable.tokens("struct it *f(int x) { if (x) return find(x); return NULL; }")))
    assert.equal(1, #rules.returned("it.c", nullable.tokens("struct it *f(int x) { return x ? find(x) : NULL; }")))
  end)

  it("passes with the mark", function()
    assert.same({}, rules.returned("it.c", nullable.tokens("struct it *MP_NULLABLE f(int x) { return x ? find(x) : NULL; }")))
    assert.same({}, rules.returned("it.c", nullable.tokens("struct it *f(int x) { return find(x == 1, NULL); }")))
  end)
end)

describe("the copy that lint reads", function()
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
    ["a member without the mark that is assigned one"] = "struct at { struct it *here; }; void f(struct at *a) { a->here = find(1); }",
    ["a parameter that is assigned one"] = "int f(struct it *a) { a = find(1); return a->x; }",
    ["what follows such a parameter's check"] = "int f(struct it *a) { if ((a = find(1)) == 0) return 0; return a->next->x; }",
    ["a static variable"] = "static struct it *MP_NULLABLE last; int f(void) { return last->x; }",
    ["a function that returns NULL without the mark"] = "struct it *f(int x) { return x ? find(x) : 0; }",
  } do
    it("shows a use without a check: " .. name, function() assert.matches("warning: Null", analyzed(body)) end)
  end

  for name, body in pairs {
    ["of a member"] = "int f(struct it *a) { if (!a->next) return 1; return a->next->x + use(a->next); }",
    ["of a callback"] = "void f(struct it *a) { if (a->done) a->done(a); }",
    ["of a parameter"] = "int f(struct it *MP_NULLABLE a) { return a ? a->x : 0; }",
    ["of a parameter that is assigned"] = "int f(struct it *a) { if ((a = find(1)) == 0) return 0; return use(a); }",
    ["of a parameter with the mark that is assigned"] = "int f(struct it *MP_NULLABLE a) { a = find(1); return a ? use(a) : 0; }",
    ["of a static variable"] = "static struct it *MP_NULLABLE last; int f(void) { return last ? last->x : 0; }",
    ["of a result"] = "int f(void) { struct it *a = find(1); return a ? use(a) : 0; }",
  } do
    it("lets a check pass: " .. name, function() assert.equal("", analyzed(body)) end)
  end
end)
