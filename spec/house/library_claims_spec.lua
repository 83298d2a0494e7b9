-- A comment that says what a library or the kernel does is tried by a spec, which docs/dev/libraries.md names beside
-- the words of the comment.
-- A claim is a sentence whose subject is one of the names below, or something of theirs ("SQLite's locks"), followed by
-- a verb. Clauses such as "before SQLite opens them" and "the bytes that libh2o writes" claim nothing by themselves. In
-- core/, Lua is such a library, with its functions and its collector; the library that we have written in Lua is called
-- so.
local lfs = require "lfs"
local sources = require "spec.helpers.sources"

local PAGE <const> = "docs/dev/libraries.md"

local names = {}
for name in ("Lua SQLite libh2o libcurl libpq glibc libc libyaml PCRE2 OpenSSL zlib Linux epoll inotify"):gmatch "%S+" do names[name] = true end

-- Words before a name that begin a clause which says when or which, and words that make the name an object.
local clauses = {}
for word in ([[suitable outside that which what as of by before when until once while
  if for than after has see like and from at in to with where]]):gmatch "%S+" do clauses[word] = true end

local modal = {}
for word in ("would never may does do can cannot could will must only also always still then else has"):gmatch "%S+" do modal[word] = true end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- The comments of a file, each in one line.
local function comments(path, text)
  local list = {}
  if path:find "%.lua$" then
    local block = {}
    for line in (text .. "\n"):gmatch "([^\n]*)\n" do
      local comment = line:match "%-%-%-?%s*(.*)$"
      if comment then block[#block + 1] = comment elseif block[1] then list[#list + 1], block = table.concat(block, " "), {} end
    end
    list[#list + 1] = table.concat(block, " ")
  else
    for comment in text:gmatch "/%*(.-)%*/" do
      list[#list + 1] = (comment:gsub("\n%s*%*?%s*", " "):gsub("%s+", " "))
    end
  end
  return list
end

-- Plural nouns that look like verbs.
local nouns = { databases = true, sockets = true, timers = true, callbacks = true, events = true, frames = true, files = true, bytes = true, requests = true,
  states = true, sources = true, libraries = true, values = true, strings = true, modules = true, functions = true, tables = true, patterns = true }

-- The sentence with one name for Lua, its functions and its collector. In lua/ the word means the language of the
-- files.
local function named(path, sentence)
  if not path:find "^core/" then return (sentence:gsub("%f[%w]Lua%f[%W]", "it")) end
  local text = sentence:gsub("%f[%w]luaL?_%l%w*", "Lua")
  if path:find "^core/vm/" or path:find "^core/lib/" then -- core/trace has another collector
    text = text:gsub("[Tt]he garbage collector", "Lua"):gsub("[Tt]he collector", "Lua")
  end
  return text
end

local function is_verb(word)
  if nouns[word] then return false end
  return modal[word] or word:find "%l%ls$" and not word:find "ss$" and not word:find "us$" and not word:find "is$"
end

-- True if the words from `i` on begin with a verb, after at most three words that belong to "NAME's".
local function has_verb(words, i, is_owner)
  if words[i] and words[i]:find "^%d" then i = i + 1 end -- a version
  for skip = 0, is_owner and 3 or 0 do
    if clauses[(words[i + skip] or ""):lower()] then return false end
    if words[i + skip] and is_verb(words[i + skip]) and not (is_owner and skip == 0) then return true end
  end
  return false
end

local function claims_something(sentence)
  local words = {}
  for word in sentence:gsub(",", " , "):gmatch "[^%s()]+" do words[#words + 1] = word end
  for i, word in ipairs(words) do
    local name, owner = word:match "^([%w]+)('?s?)$"
    local is_kernel = word == "kernel" and (words[i - 1] or ""):lower() == "the"
    local before = words[is_kernel and i - 2 or i - 1]
    if (is_kernel or names[name]) and not (before and clauses[before:lower()]) and has_verb(words, i + 1, owner == "'s") then return true end
  end
  return false
end

-- f(path, comments) for each file of core/ and lua/, but the types for editors.
local function each_file(folder, f)
  sources.each(folder, function(path, text)
    if not path:find "^lua/types/" then f(path, comments(path, text)) end
  end, "%.[ch]$", "%.def$", "%.lua$")
end

-- The rows of the page: { file, words, spec }.
local function rows()
  local list = {}
  for line in read(PAGE):gmatch "[^\n]+" do
    local file, words, spec = line:match '^| `([^`]+)` | "(.-)" | (.-) |$'
    if file then list[#list + 1] = { file = file, words = words, spec = spec } end
  end
  return list
end

describe("a comment that says what a library does", function()
  it("is in the table with the spec that tries it", function()
    local by_file, missing = {}, {}
    for _, row in ipairs(rows()) do
      by_file[row.file] = by_file[row.file] or {}
      table.insert(by_file[row.file], row.words)
    end
    local function check(path, list)
      for _, comment in ipairs(list) do
        for sentence in (comment:gsub("([.:;]) (%f[%u%l])", "%1\n%2") .. "\n"):gmatch "([^\n]*)\n" do
          local is_known = not claims_something(named(path, sentence))
          for _, words in ipairs(by_file[path] or {}) do is_known = is_known or sentence:find(words, 1, true) ~= nil end
          if not is_known then missing[#missing + 1] = ("%s: %s"):format(path, sentence) end
        end
      end
    end
    each_file("core", check)
    each_file("lua", check)
    assert.equal("", table.concat(missing, "\n"), "try these in a spec and add them to " .. PAGE .. ", or delete them")
  end)

  it("is where the table says, and the specs that it names are there", function()
    local wrong = {}
    for _, row in ipairs(rows()) do
      local text = lfs.attributes(row.file) and table.concat(comments(row.file, read(row.file)), "\n") or ""
      if not text:find(row.words, 1, true) then wrong[#wrong + 1] = row.file .. " has no comment with: " .. row.words end
      local count = 0
      for spec in row.spec:gmatch "`([^`]+)`" do
        count = count + 1
        if not lfs.attributes(spec) then wrong[#wrong + 1] = "there is no " .. spec end
      end
      if count == 0 then wrong[#wrong + 1] = row.file .. ": no spec for: " .. row.words end
    end
    assert.equal("", table.concat(wrong, "\n"))
  end)
end)
